#include "common/process/reader_threads.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace rawduck {

namespace {

constexpr std::chrono::microseconds POLL_INTERVAL{100};
constexpr int SLEEPS_MIN = 2;
//! What a task may use after its read: copying takes 0.5 ns per byte, decrypting and compressing about 4
//! each.
constexpr int64_t TASK_CPU_NS = 5 * 1000 * 1000, TASK_CPU_NS_PER_BYTE = 10;
constexpr uint32_t OTHER_FILE = 0;

//! The last read of each thread: its id and the number of the file. Threads that share a slot overwrite each
//! other's entry; then nothing is known of the earlier one. Has no destructor, because files are closed until
//! the process ends.
constexpr size_t SLOTS = 4096;
std::array<std::atomic<uint64_t>, SLOTS> last_reads;

int32_t ThisThread() {
    thread_local const auto id = static_cast<int32_t>(syscall(SYS_gettid));
    return id;
}

std::atomic<uint64_t> &SlotOf(int32_t thread) {
    return last_reads[static_cast<uint32_t>(thread) % SLOTS];
}

uint64_t LastRead(int32_t thread, uint32_t file) {
    return static_cast<uint64_t>(static_cast<uint32_t>(thread)) << 32 | file;
}

bool HasReadAnother(int32_t thread, uint32_t file) {
    const uint64_t last = SlotOf(thread).load();
    return last >> 32 == LastRead(thread, file) >> 32 && last != LastRead(thread, file);
}

//! -1 when the thread has ended.
int64_t CpuNs(int32_t thread) {
    // The kernel's number of a thread's CPU clock; pthread_getcpuclockid needs a thread that has not ended.
    constexpr uint32_t PER_THREAD_SCHEDULED = 6;
    const auto clock = static_cast<clockid_t>(~static_cast<uint32_t>(thread) << 3 | PER_THREAD_SCHEDULED);
    timespec used{};
    return clock_gettime(clock, &used) == 0 ? used.tv_sec * 1000000000LL + used.tv_nsec : -1;
}

//! The state in /proc/self/task/<thread>/stat follows the name, which is in parentheses and may contain any
//! character. False for a thread that has ended.
bool IsRunning(int32_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    const size_t end = line.rfind(')');
    return end != std::string::npos && end + 2 < line.size() && line[end + 2] == 'R';
}

} // namespace

uint32_t ReaderThreads::NextNumber() {
    static std::atomic<uint32_t> last{OTHER_FILE};
    const uint32_t number = ++last;
    return number == OTHER_FILE ? ++last : number;
}

ReaderThreads::Reader &ReaderThreads::ReaderOf(int32_t thread) {
    const auto known = std::find_if(readers_.begin(), readers_.end(),
                                    [&](const Reader &reader) { return reader.thread == thread; });
    if (known != readers_.end()) {
        return *known;
    }
    if (readers_.size() == readers_.capacity()) {
        // Threads may be short, and the file open for long.
        readers_.erase(std::remove_if(readers_.begin(), readers_.end(),
                                      [](const Reader &reader) { return CpuNs(reader.thread) < 0; }),
                       readers_.end());
    }
    readers_.push_back({thread, 0});
    return readers_.back();
}

// A thread's entry stays while the thread is there.
void ReaderThreads::Expect(uint64_t bytes) {
    thread_local struct {
        uint32_t file;
        uint64_t bytes;
    } listed{OTHER_FILE, 0};
    if (listed.file == number_ && listed.bytes >= bytes) {
        return;
    }
    std::lock_guard<std::mutex> guard(mutex_);
    Reader &reader = ReaderOf(ThisThread());
    reader.bytes = std::max(reader.bytes, bytes);
    listed = {number_, reader.bytes};
}

void ReaderThreads::Add() noexcept {
    SlotOf(ThisThread()) = LastRead(ThisThread(), number_);
}

void ReaderThreads::AddOtherFile() {
    SlotOf(ThisThread()) = LastRead(ThisThread(), OTHER_FILE);
}

std::vector<ReaderThreads::Observed> ReaderThreads::Observe() const {
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<Observed> observed;
    for (const Reader &reader : readers_) {
        observed.push_back({reader.thread, CpuNs(reader.thread) + TASK_CPU_NS +
                                               TASK_CPU_NS_PER_BYTE * static_cast<int64_t>(reader.bytes)});
    }
    return observed;
}

bool ReaderThreads::HasReleased(Observed &reader) const {
    if (reader.thread == ThisThread() || HasReadAnother(reader.thread, number_)) {
        return true;
    }
    const int64_t cpu_ns = CpuNs(reader.thread);
    if (cpu_ns < 0 || cpu_ns > reader.done_cpu_ns) {
        return true;
    }
    reader.sleeps += IsRunning(reader.thread) ? 0 : 1;
    return reader.sleeps >= SLEEPS_MIN;
}

void ReaderThreads::WaitUntilReleased(std::chrono::milliseconds limit,
                                      const std::function<bool()> &released) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::vector<Observed> readers = Observe();
    for (;;) {
        readers.erase(std::remove_if(readers.begin(), readers.end(),
                                     [this](Observed &reader) { return HasReleased(reader); }),
                      readers.end());
        if (readers.empty() || released() || std::chrono::steady_clock::now() > deadline) {
            return;
        }
        std::this_thread::sleep_for(POLL_INTERVAL);
    }
}

} // namespace rawduck
