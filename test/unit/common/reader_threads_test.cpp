#include "common/process/reader_threads.hpp"
#include "support/out_of_memory.hpp"

#include <atomic>
#include <gtest/gtest.h>
#include <new>
#include <string>
#include <thread>
#include <unistd.h>

namespace rawduck {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::hours NO_LIMIT{1};
constexpr uint64_t BYTES = 4 * 1024 * 1024;

Clock::duration WaitFor(ReaderThreads &readers, std::chrono::milliseconds limit) {
    const auto begin = Clock::now();
    readers.WaitUntilReleased(limit);
    return Clock::now() - begin;
}

void Read(ReaderThreads &readers, uint64_t bytes) {
    readers.Expect(bytes);
    readers.Add();
}

//! A thread that never rests: it reads once, and then goes on with `work` until this is destroyed.
class BusyThread {
  public:
    template <class READ, class WORK>
    BusyThread(READ read, WORK work)
        : thread_([this, read, work] {
              cpu_before_ns_ = CpuNs(pthread_self());
              read();
              has_read_ = true;
              while (!stop_) {
                  work();
              }
          }) {
        while (!has_read_) {
            std::this_thread::yield();
        }
    }
    ~BusyThread() {
        stop_ = true;
        thread_.join();
    }

    //! Since it was about to read.
    int64_t UsedNs() { return CpuNs(thread_.native_handle()) - cpu_before_ns_; }

  private:
    static int64_t CpuNs(pthread_t thread) {
        clockid_t clock;
        timespec used{};
        EXPECT_EQ(pthread_getcpuclockid(thread, &clock), 0);
        EXPECT_EQ(clock_gettime(clock, &used), 0);
        return used.tv_sec * 1000000000LL + used.tv_nsec;
    }

    int64_t cpu_before_ns_ = 0; //!< read after has_read_
    std::atomic<bool> has_read_{false}, stop_{false};
    std::thread thread_;
};

TEST(ReaderThreadsTest, ThreadsThatHaveEndedTakeNoRoom) {
    ReaderThreads readers;
    const auto read_briefly = [&readers](int64_t allocations) {
        std::string entry;
        std::thread([&] {
            entry = "/proc/self/task/" + std::to_string(gettid());
            const OutOfMemoryAfter limit(allocations);
            EXPECT_NO_THROW(readers.Expect(BYTES));
        }).join();
        while (access(entry.c_str(), F_OK) == 0) { // joined a moment before the kernel has removed it
            std::this_thread::yield();
        }
    };
    read_briefly(INT32_MAX);
    for (int i = 0; i < 100; i++) {
        read_briefly(0);
    }
}

// A read is counted where nothing may fail any more.
TEST(ReaderThreadsTest, WhoIsExpectedIsAddedWithoutMemory) {
    ReaderThreads readers, others;
    readers.Expect(BYTES);
    const OutOfMemoryAfter first(0);
    EXPECT_NO_THROW(readers.Expect(BYTES));
    readers.Add();
    EXPECT_FALSE(first.Failed());
    EXPECT_THROW(others.Expect(BYTES), std::bad_alloc);
}

TEST(ReaderThreadsTest, AThreadThatHasReadAnotherFileHasReleased) {
    ReaderThreads readers, others;
    auto both = [&] {
        Read(readers, BYTES);
        Read(others, BYTES);
    };
    const BusyThread busy(both, [] {});
    EXPECT_LT(WaitFor(readers, NO_LIMIT), std::chrono::minutes(1));
}

TEST(ReaderThreadsTest, AFileThatNobodyWaitsForIsAnotherFile) {
    ReaderThreads readers;
    const BusyThread busy([&] { Read(readers, BYTES); }, [] { ReaderThreads::AddOtherFile(); });
    EXPECT_LT(WaitFor(readers, NO_LIMIT), std::chrono::minutes(1));
}

TEST(ReaderThreadsTest, AThreadThatRunsIsWaitedForUntilItMustHaveReleased) {
    ReaderThreads readers;
    BusyThread busy([&] { Read(readers, BYTES); }, [] {});
    EXPECT_LT(WaitFor(readers, NO_LIMIT), std::chrono::minutes(1));
    EXPECT_GE(busy.UsedNs(), 10 * static_cast<int64_t>(BYTES));
}

TEST(ReaderThreadsTest, TheLargestReadCounts) {
    ReaderThreads readers, others;
    const auto reads = [&] {
        Read(readers, BYTES);
        Read(others, BYTES); // and then it is no longer the last one
        Read(readers, BYTES / 1024);
        Read(readers, 2 * BYTES);
    };
    BusyThread busy(reads, [] {});
    EXPECT_LT(WaitFor(readers, NO_LIMIT), std::chrono::minutes(1));
    EXPECT_GE(busy.UsedNs(), 20 * static_cast<int64_t>(BYTES));
}

TEST(ReaderThreadsTest, NobodyIsWaitedForWhoIsKnownToHaveReleased) {
    ReaderThreads readers;
    BusyThread busy([&] { Read(readers, BYTES * BYTES); }, [] {});
    int asked = 0;
    readers.WaitUntilReleased(NO_LIMIT, [&] { return ++asked == 3; });
    EXPECT_EQ(asked, 3);
}

TEST(ReaderThreadsTest, AThreadThatHasEndedHasReleased) {
    ReaderThreads readers;
    std::thread([&] { Read(readers, BYTES); }).join();
    EXPECT_LT(WaitFor(readers, NO_LIMIT), std::chrono::minutes(1));
}

TEST(ReaderThreadsTest, TheCallingThreadIsNotWaitedFor) {
    ReaderThreads readers;
    Read(readers, BYTES);
    Read(readers, BYTES);
    EXPECT_LT(WaitFor(readers, NO_LIMIT), std::chrono::minutes(1));
}

} // namespace
} // namespace rawduck
