#include "filesystem/reader_threads.hpp"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

namespace rawduck {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds LIMIT{300};

Clock::duration WaitFor(ReaderThreads &readers, std::chrono::milliseconds limit) {
    const auto begin = Clock::now();
    readers.WaitUntilTheyRest(limit);
    return Clock::now() - begin;
}

TEST(ReaderThreadsTest, AThreadThatGoesOnIsWaitedForUpToTheLimit) {
    ReaderThreads readers;
    std::atomic<bool> added{false}, stop{false};
    std::thread reader([&] {
        readers.Add();
        added = true;
        while (!stop) {
        }
    });
    while (!added) {
        std::this_thread::yield();
    }
    EXPECT_GE(WaitFor(readers, LIMIT), LIMIT);
    stop = true;
    reader.join();
    EXPECT_LT(WaitFor(readers, std::chrono::hours(1)), std::chrono::minutes(1)) << "it has ended";
}

TEST(ReaderThreadsTest, TheCallingThreadIsNotWaitedFor) {
    ReaderThreads readers;
    readers.Add();
    readers.Add();
    EXPECT_LT(WaitFor(readers, std::chrono::hours(1)), std::chrono::minutes(1));
}

} // namespace
} // namespace rawduck
