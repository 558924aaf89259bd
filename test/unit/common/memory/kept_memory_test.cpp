//! What the process keeps of memory that DuckDB has freed.
#include "common/memory/buffers/buffer_memory.hpp"
#include "common/memory/stable_memory.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace rawduck {
namespace {

//! What a query has freed stays for the next one, within a sixteenth of what is available, and goes when none comes.
TEST(KeptMemoryTest, TheProcessKeepsWhatIsAvailableForASecond) {
    BufferMemory *const memory = BufferMemory::OfProcess();
    ASSERT_NE(memory, nullptr);
    constexpr uint64_t KEPT = 96 * MIB, BLOCK = BlockArena::BLOCK_BYTES;
    static std::atomic<int> asked;
    memory->KeepWhatIsAvailable([] {
        asked++;
        return BufferMemory::KEPT_SHARE * KEPT;
    });
    std::vector<char *> blocks;
    for (uint64_t i = 0; i < 2 * KEPT / BLOCK; i++) {
        blocks.push_back(memory->Allocate(BLOCK));
    }
    for (const int before = asked; asked == before;) { // a thread asks that starts when something is freed
        memory->Free(memory->Allocate(BLOCK));
        usleep(1000);
    }
    usleep(10000);
    for (char *block : blocks) {
        memory->Free(block);
    }
    const uint64_t kept = memory->Count().blocks.kept_bytes;
    EXPECT_LE(kept, KEPT);
    EXPECT_GT(kept, KEPT / 2 - PageBacking::CHUNK_BYTES);
    while (memory->Count().blocks.kept_bytes > 0) {
        usleep(10000);
    }
    memory->KeepWhatIsAvailable(nullptr);
}

//! Its pages would be charged as long as it lives, and it has no thread that gives back.
TEST(KeptMemoryTest, AChildOfTheProcessBeginsWithoutIt) {
    BufferMemory *const memory = BufferMemory::OfProcess();
    ASSERT_NE(memory, nullptr);
    constexpr uint64_t BLOCK = BlockArena::BLOCK_BYTES;
    std::vector<char *> blocks;
    for (uint64_t i = 0; i < 200; i++) {
        blocks.push_back(memory->Allocate(BLOCK));
        std::memset(blocks.back(), 1, BLOCK);
    }
    for (uint64_t i = 0; i < blocks.size(); i++) {
        if (i % 5 != 0) {
            memory->Free(blocks[i]);
        }
    }
    const pid_t child = fork();
    if (child == 0) {
        bool good = memory->Count().blocks.kept_bytes == 0;
        for (uint64_t i = 0; i < blocks.size(); i++) {
            if (i % 5 != 0) {
                blocks[i] = memory->Allocate(BLOCK);
                std::memset(blocks[i], 2, BLOCK);
            }
        }
        for (uint64_t i = 0; i < blocks.size(); i++) {
            good = good && blocks[i][BLOCK - 1] == (i % 5 != 0 ? 2 : 1);
            memory->Free(blocks[i]);
        }
        _exit(good ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (uint64_t i = 0; i < blocks.size(); i += 5) {
        EXPECT_EQ(blocks[i][0], 1);
        memory->Free(blocks[i]);
    }
}

//! Forks when memory is first given back.
class ForkAmidGivingBack final : public StableMemory::Watcher {
  public:
    explicit ForkAmidGivingBack(std::function<bool()> check) : check_(std::move(check)) {
        StableMemory::Watch(*this);
    }
    ~ForkAmidGivingBack() override { StableMemory::Unwatch(*this); }
    void PagesGo(char *, uint64_t, uint64_t, StableMemory::Afterwards &afterwards) noexcept override {
        if (!has_forked_.exchange(true)) {
            afterwards.emplace_back([this] {
                const pid_t child = fork();
                if (child == 0) {
                    _exit(check_() ? 0 : 1);
                }
                waitpid(child, &status_, 0);
                is_done_ = true;
            });
        }
    }
    //! The exit status of the child.
    int Status() const {
        while (!is_done_) {
            usleep(1000);
        }
        return status_;
    }

  private:
    const std::function<bool()> check_;
    std::atomic<bool> has_forked_{false}, is_done_{false};
    int status_ = -1;
};

//! What is freed before, of so many bytes each, is little enough to stay until a thread gives it back.
void ExpectNothingOfItInAChild(uint64_t bytes, uint64_t count) {
    BufferMemory *const memory = BufferMemory::OfProcess();
    const auto kept = [memory] {
        const BufferMemory::Counts counts = memory->Count();
        return counts.blocks.kept_bytes + counts.staging.kept_bytes;
    };
    const auto used = [memory] {
        const BufferMemory::Counts counts = memory->Count();
        return counts.blocks.used_bytes + counts.staging.used_bytes;
    };
    while (kept() > 0) {
        usleep(10000);
    }
    auto *const used_in_child = static_cast<std::atomic<uint64_t> *>(
        mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(used_in_child, MAP_FAILED);
    std::vector<char *> taken;
    for (uint64_t i = 0; i < count; i++) {
        taken.push_back(memory->Allocate(bytes));
    }
    const ForkAmidGivingBack watcher([&] {
        *used_in_child = used();
        const bool is_dropped = memory->Count().blocks.kept_bytes == 0;
        std::memset(memory->Allocate(bytes), 1, bytes);
        return is_dropped && used() == *used_in_child + bytes;
    });
    for (char *one : taken) {
        memory->Free(one);
    }
    EXPECT_EQ(watcher.Status(), 0) << bytes;
    // What the child has from the start is what this process still has when all of it is given back: before what is
    // freed later.
    memory->Free(memory->Allocate(BlockArena::BLOCK_BYTES));
    for (int i = 0; i < 1000 && (kept() > 0 || used() > *used_in_child); i++) {
        usleep(10000);
    }
    EXPECT_EQ(used(), *used_in_child) << bytes;
    munmap(used_in_child, sizeof(uint64_t));
}

TEST(KeptMemoryTest, AChildThatIsMadeAmidGivingBackHasNoneOfIt) {
    ASSERT_NE(BufferMemory::OfProcess(), nullptr);
    ExpectNothingOfItInAChild(BlockArena::BLOCK_BYTES, 40);
    ExpectNothingOfItInAChild(StagingArena::LENGTH_MAX, 1);
}

TEST(KeptMemoryTest, WhatIsAvailableMayFailToBeSaid) {
    BufferMemory *const memory = BufferMemory::OfProcess();
    ASSERT_NE(memory, nullptr);
    static std::atomic<int> asked;
    memory->KeepWhatIsAvailable([]() -> uint64_t {
        asked++;
        throw std::bad_alloc();
    });
    while (asked == 0) {
        memory->Free(memory->Allocate(BlockArena::BLOCK_BYTES));
        usleep(1000);
    }
    memory->KeepWhatIsAvailable(nullptr);
}

} // namespace
} // namespace rawduck
