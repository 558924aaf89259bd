//! What the process keeps of memory that DuckDB has freed.
#include "common/memory/buffers/buffer_memory.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <new>
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
