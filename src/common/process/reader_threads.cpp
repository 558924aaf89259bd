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
//! What it may use to let go of the blocks: of some the memory is given back to the system, about 20 us for 256 KiB.
constexpr int64_t RELEASE_CPU_NS = 1000 * 1000, RELEASE_BYTES_PER_CPU_NS = 5;
constexpr uint32_t OTHER_FILE = 0;

//! The last read of each thread: its id and the number of the file. Threads that share a slot overwrite each
//! other's entry; then nothing is known of the earlier one. Has no destructor, because files are closed until
//! the process ends.
constexpr size_t SLOTS = 4096;
std::array<std::atomic<uint64_t>, SLOTS> last_reads;
//! When the thread has freed the memory that it read into: its id, and its processor time in microseconds. 0: not yet.
std::array<std::atomic<uint64_t>, SLOTS> last_frees;
constexpr unsigned FREE_TIME_BITS = 42; // 50 days; the kernel's ids of threads have 22 bits
constexpr uint64_t FREE_TIME_MASK = (uint64_t{1} << FREE_TIME_BITS) - 1;

int32_t ThisThread() {
    thread_local const auto id = static_cast<int32_t>(syscall(SYS_gettid));
    return id;
}

size_t SlotOf(int32_t thread) {
    return static_cast<uint32_t>(thread) % SLOTS;
}

uint64_t LastRead(int32_t thread, uint32_t file) {
    return static_cast<uint64_t>(static_cast<uint32_t>(thread)) << 32 | file;
}

bool HasReadAnother(int32_t thread, uint32_t file) {
    const uint64_t last = last_reads[SlotOf(thread)].load();
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

//! Processor time of the thread when it freed what it read into; -1 when it is not known to have done so.
int64_t FreedCpuNs(int32_t thread) {
    const uint64_t freed = last_frees[SlotOf(thread)].load();
    return freed >> FREE_TIME_BITS == static_cast<uint32_t>(thread)
               ? static_cast<int64_t>(freed & FREE_TIME_MASK) * 1000
               : -1;
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

thread_local const void *ReaderThreads::read_into = nullptr;

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
    readers_.push_back({thread, 0, 0});
    return readers_.back();
}

void ReaderThreads::Expect() {
    std::lock_guard<std::mutex> guard(mutex_);
    ReaderOf(ThisThread());
}

void ReaderThreads::Add(const void *memory, uint64_t bytes) {
    const int32_t thread = ThisThread();
    const auto signed_bytes = static_cast<int64_t>(bytes);
    const int64_t done_cpu_ns = CpuNs(thread) + TASK_CPU_NS + TASK_CPU_NS_PER_BYTE * signed_bytes;
    last_frees[SlotOf(thread)] = 0; // first: an earlier one is not of this read
    last_reads[SlotOf(thread)] = LastRead(thread, number_);
    read_into = memory;
    std::lock_guard<std::mutex> guard(mutex_);
    Reader &reader = ReaderOf(thread);
    reader.done_cpu_ns = done_cpu_ns;
    reader.release_ns = RELEASE_CPU_NS + signed_bytes / RELEASE_BYTES_PER_CPU_NS;
}

void ReaderThreads::AddOtherFile() {
    last_reads[SlotOf(ThisThread())] = LastRead(ThisThread(), OTHER_FILE);
}

void ReaderThreads::NoteFreed() {
    read_into = nullptr;
    const int32_t thread = ThisThread();
    const auto cpu_us = static_cast<uint64_t>(CpuNs(thread)) / 1000 + 1;
    last_frees[SlotOf(thread)] =
        uint64_t{static_cast<uint32_t>(thread)} << FREE_TIME_BITS | (cpu_us & FREE_TIME_MASK);
}

bool ReaderThreads::HasReleased(Reader &reader) const {
    if (reader.thread == ThisThread() || HasReadAnother(reader.thread, number_)) {
        return true;
    }
    const int64_t cpu_ns = CpuNs(reader.thread);
    const int64_t freed_cpu_ns = FreedCpuNs(reader.thread);
    if (cpu_ns < 0 || cpu_ns > reader.done_cpu_ns ||
        (freed_cpu_ns >= 0 && cpu_ns > freed_cpu_ns + reader.release_ns)) {
        return true;
    }
    reader.sleeps += IsRunning(reader.thread) ? 0 : 1;
    return reader.sleeps >= SLEEPS_MIN;
}

void ReaderThreads::WaitUntilReleased(std::chrono::milliseconds limit) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::vector<Reader> readers;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        readers = readers_;
    }
    for (;;) {
        readers.erase(std::remove_if(readers.begin(), readers.end(),
                                     [this](Reader &reader) { return HasReleased(reader); }),
                      readers.end());
        if (readers.empty() || std::chrono::steady_clock::now() > deadline) {
            return;
        }
        std::this_thread::sleep_for(POLL_INTERVAL);
    }
}

} // namespace rawduck
