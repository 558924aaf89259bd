#include "filesystem/reader_threads.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace rawduck {

namespace {

constexpr std::chrono::microseconds PAUSE{100};
//! Once it may wait for a lock amid its work.
constexpr int TIMES = 2;

int32_t ThisThread() {
    thread_local const auto id = static_cast<int32_t>(syscall(SYS_gettid));
    return id;
}

//! The state in /proc/self/task/<thread>/stat follows the name, which is in parentheses and may hold any. A
//! thread that has ended rests.
bool Runs(int32_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    const size_t end = line.rfind(')');
    return end != std::string::npos && end + 2 < line.size() && line[end + 2] == 'R';
}

} // namespace

void ReaderThreads::Add() {
    const int32_t thread = ThisThread();
    std::lock_guard<std::mutex> guard(mutex_);
    if (std::find(threads_.begin(), threads_.end(), thread) == threads_.end()) {
        threads_.push_back(thread);
    }
}

void ReaderThreads::WaitUntilTheyRest(std::chrono::milliseconds limit) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::vector<int32_t> threads;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        threads = threads_;
    }
    for (const int32_t thread : threads) {
        for (int seen = 0; thread != ThisThread() && seen < TIMES;) {
            seen += Runs(thread) ? 0 : 1;
            if (std::chrono::steady_clock::now() > deadline) {
                return;
            }
            std::this_thread::sleep_for(PAUSE);
        }
    }
}

} // namespace rawduck
