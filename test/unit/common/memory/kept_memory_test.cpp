//! What the process keeps of memory that DuckDB has freed.
#include "common/memory/buffers/buffer_memory.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
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
