//! Memory that DuckDB reads into: who has what, what stays in memory, and what is given back.
#include "common/memory/buffers/buffer_memory.hpp"
#include "common/memory/stable_memory.hpp"
#include "support/emulation.hpp"
#include "support/out_of_memory.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace rawduck {
namespace {

constexpr uint64_t BLOCK = BlockArena::BLOCK_BYTES;
constexpr uint64_t CHUNK = PageBacking::CHUNK_BYTES;

//! How much of it is in memory.
uint64_t ResidentBytes(char *begin, uint64_t bytes) {
    std::vector<unsigned char> pages(bytes / PAGE_BYTES);
    EXPECT_EQ(mincore(begin, bytes, pages.data()), 0);
    uint64_t resident = 0;
    for (const unsigned char page : pages) {
        resident += (page & 1) * PAGE_BYTES;
    }
    return resident;
}

class BlockArenaTest : public ::testing::Test {
  protected:
    static constexpr uint64_t BYTES = 64 * CHUNK;
    HugeMemory memory_{BYTES, HugeMemory::Pages::AS_ADVISED_LATER};
    PageBacking backing_;
    BlockArena arena_{memory_.Data(), BYTES, backing_};

    uint64_t Resident() { return ResidentBytes(memory_.Data(), BYTES); }
    std::vector<char *> AllocateAll(uint64_t count) {
        std::vector<char *> blocks;
        for (uint64_t i = 0; i < count; i++) {
            blocks.push_back(arena_.Allocate());
        }
        return blocks;
    }
};

TEST_F(BlockArenaTest, EveryBlockIsItsOwnersAlone) {
    std::vector<char *> blocks = AllocateAll(BYTES / BLOCK);
    EXPECT_EQ(std::set<char *>(blocks.begin(), blocks.end()).size(), BYTES / BLOCK);
    for (uint64_t i = 0; i < blocks.size(); i++) {
        ASSERT_NE(blocks[i], nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks[i]) % PAGE_BYTES, 0u);
        std::memset(blocks[i], static_cast<int>(i % 251), BLOCK);
    }
    for (uint64_t i = 0; i < blocks.size(); i++) {
        EXPECT_EQ(blocks[i][0], static_cast<char>(i % 251));
        EXPECT_EQ(blocks[i][BLOCK - 1], static_cast<char>(i % 251));
    }
    EXPECT_EQ(arena_.Allocate(), nullptr) << "all are in use";
    arena_.Free(blocks[7]);
    EXPECT_EQ(arena_.Allocate(), blocks[7]);
}

TEST_F(BlockArenaTest, CountsAreWhatIsInMemory) {
    if (AdviceIsIgnored()) {
        GTEST_SKIP() << "an emulator ignores madvise()";
    }
    std::vector<char *> blocks = AllocateAll(3);
    EXPECT_EQ(arena_.Count().used_bytes, 3 * BLOCK);
    EXPECT_EQ(arena_.Count().kept_bytes, CHUNK - 3 * BLOCK);
    EXPECT_EQ(Resident(), CHUNK);
    for (char *block : blocks) {
        arena_.Free(block);
    }
    EXPECT_EQ(arena_.Count().used_bytes, 0u);
    EXPECT_EQ(arena_.Count().kept_bytes, CHUNK);
}

TEST_F(BlockArenaTest, KeepsAnEighthOfWhatIsInUseWithinBounds) {
    std::vector<char *> blocks = AllocateAll(BYTES / BLOCK);
    for (char *block : blocks) {
        arena_.Free(block);
        const BlockArena::Counts counts = arena_.Count();
        EXPECT_LE(counts.kept_bytes, BlockArena::KEPT_MIN);
        EXPECT_LE(Resident(), counts.used_bytes + counts.kept_bytes);
    }
    EXPECT_GT(arena_.Count().kept_bytes, 0u);
}

TEST_F(BlockArenaTest, KeepsAsMuchAsItIsAllowed) {
    constexpr uint64_t ALLOWED = BYTES / 2;
    arena_.KeepUpTo(ALLOWED);
    for (char *block : AllocateAll(BYTES / BLOCK)) {
        arena_.Free(block);
        EXPECT_LE(arena_.Count().kept_bytes, ALLOWED);
    }
    EXPECT_GT(arena_.Count().kept_bytes, 2 * BlockArena::KEPT_MIN);
    arena_.GiveBackUnused();
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, 0u) << "nobody took it";
    for (char *block : AllocateAll(ALLOWED / BLOCK)) {
        arena_.Free(block);
    }
    EXPECT_EQ(arena_.Count().kept_bytes, ALLOWED);
    arena_.KeepUpTo(0);
    arena_.Free(arena_.Allocate());
    EXPECT_LE(arena_.Count().kept_bytes, BlockArena::KEPT_MIN) << "memory has become scarce";
}

TEST_F(BlockArenaTest, GivesBackPartsOfChunksWhereNothingElseIsFree) {
    std::vector<char *> blocks = AllocateAll(BYTES / BLOCK);
    for (uint64_t i = 0; i < blocks.size(); i++) {
        std::memset(blocks[i], 1, BLOCK);
        if (i % 8 != 3) {
            arena_.Free(blocks[i]);
        }
    }
    const BlockArena::Counts counts = arena_.Count();
    EXPECT_EQ(counts.used_bytes, BYTES / 8);
    EXPECT_LE(counts.kept_bytes, BlockArena::KEPT_MIN);
    EXPECT_LE(Resident(), counts.used_bytes + counts.kept_bytes);
    for (uint64_t i = 3; i < blocks.size(); i += 8) {
        EXPECT_EQ(blocks[i][BLOCK - 1], 1) << "a block in use was given back";
    }
    // All can be had again, and in the end all is given back.
    std::vector<char *> again = AllocateAll(BYTES / BLOCK * 7 / 8);
    EXPECT_EQ(std::set<char *>(again.begin(), again.end()).count(nullptr), 0u);
    EXPECT_EQ(arena_.Count().kept_bytes, 0u);
    for (char *block : again) {
        arena_.Free(block);
    }
    for (uint64_t i = 3; i < blocks.size(); i += 8) {
        arena_.Free(blocks[i]);
    }
    arena_.GiveBackUnused();
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, 0u);
    EXPECT_EQ(Resident(), 0u);
}

TEST_F(BlockArenaTest, GivesBackWhatNobodyTookSinceTheLastTime) {
    std::vector<char *> blocks = AllocateAll(32);
    for (char *block : blocks) {
        arena_.Free(block);
    }
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, 32 * BLOCK) << "they were in use since the last time";
    blocks = AllocateAll(16);
    for (char *block : blocks) {
        arena_.Free(block);
    }
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, 16 * BLOCK);
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, 0u);
    EXPECT_EQ(Resident(), 0u);
}

//! Destructors free blocks, and the thread that gives back has nobody to tell.
TEST_F(BlockArenaTest, FreeingTakesNoMemory) {
    std::vector<StableMemory::Range> ranges;
    StableMemory::Copy(ranges); // makes the list, once for a process
    std::vector<char *> blocks = AllocateAll(BYTES / BLOCK);
    const OutOfMemoryAfter no_memory(0);
    // Every other one first: parts of many chunks are given back at a time.
    for (const uint64_t odd : {0, 1}) {
        for (uint64_t i = odd; i < blocks.size(); i += 2) {
            ASSERT_NO_THROW(arena_.Free(blocks[i]));
        }
    }
    ASSERT_NO_THROW(arena_.GiveBackUnused());
    ASSERT_NO_THROW(arena_.GiveBackUnused());
    EXPECT_FALSE(no_memory.Failed());
    EXPECT_EQ(arena_.Count().used_bytes + arena_.Count().kept_bytes, 0u);
}

TEST_F(BlockArenaTest, RandomUseByThreads) {
    const auto work = [&](unsigned seed) {
        std::minstd_rand random(seed);
        std::map<char *, char> mine;
        for (int step = 0; step < 4000; step++) {
            if (mine.size() < 100 && random() % 2 == 0) {
                if (char *const block = arena_.Allocate()) {
                    const auto mark = static_cast<char>(random());
                    block[0] = block[BLOCK - 1] = mark;
                    EXPECT_TRUE(mine.emplace(block, mark).second);
                }
            } else if (!mine.empty()) {
                const auto it = std::next(mine.begin(), static_cast<long>(random() % mine.size()));
                EXPECT_EQ(it->first[0], it->second);
                EXPECT_EQ(it->first[BLOCK - 1], it->second);
                arena_.Free(it->first);
                mine.erase(it);
            }
            if (random() % 64 == 0) {
                arena_.GiveBackUnused();
            }
        }
        for (const auto &[block, mark] : mine) {
            arena_.Free(block);
        }
    };
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; seed++) {
        threads.emplace_back(work, seed);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(arena_.Count().used_bytes, 0u);
    arena_.GiveBackUnused();
    arena_.GiveBackUnused();
    EXPECT_EQ(Resident(), 0u);
}

TEST(BlockArenaDeathTest, ABlockIsFreedOnce) {
    HugeMemory memory(CHUNK);
    PageBacking backing;
    BlockArena arena(memory.Data(), CHUNK, backing);
    char *const block = arena.Allocate();
    arena.Free(block);
    EXPECT_DEATH(arena.Free(block), "freed once");
    EXPECT_DEATH(arena.Free(block + 1), "allocated here");
}

class StagingArenaTest : public ::testing::Test {
  protected:
    HugeMemory memory_{StagingArena::ARENA_BYTES, HugeMemory::Pages::AS_ADVISED_LATER};
    PageBacking backing_;
    StagingArena arena_{memory_.Data(), backing_};
};

TEST_F(StagingArenaTest, UsesTheSamePlacesAgain) {
    char *const first = arena_.Allocate(512 * KIB);
    char *const second = arena_.Allocate(StagingArena::LENGTH_MAX);
    EXPECT_EQ(second, first + 512 * KIB);
    arena_.Free(first);
    EXPECT_EQ(arena_.Allocate(768 * KIB), second + StagingArena::LENGTH_MAX)
        << "the first place is too small";
    EXPECT_EQ(arena_.Allocate(512 * KIB), first);
    EXPECT_EQ(arena_.Count().used_bytes, 512 * KIB + StagingArena::LENGTH_MAX + 768 * KIB);
    std::memset(second, 1, StagingArena::LENGTH_MAX);
}

TEST_F(StagingArenaTest, IsFullAtSomeTime) {
    std::set<char *> places;
    while (char *const place = arena_.Allocate(StagingArena::LENGTH_MAX)) {
        EXPECT_TRUE(places.insert(place).second);
    }
    EXPECT_EQ(places.size(), StagingArena::ARENA_BYTES / StagingArena::LENGTH_MAX);
    EXPECT_EQ(arena_.Allocate(StagingArena::UNIT_BYTES), nullptr);
}

TEST_F(StagingArenaTest, KeepsNoMoreThanItsBound) {
    if (AdviceIsIgnored()) {
        GTEST_SKIP() << "an emulator ignores madvise()";
    }
    std::vector<char *> places;
    for (int i = 0; i < 4; i++) {
        places.push_back(arena_.Allocate(StagingArena::LENGTH_MAX));
    }
    for (char *place : places) {
        arena_.Free(place);
        EXPECT_LE(arena_.Count().kept_bytes, StagingArena::KEPT_MAX);
    }
    EXPECT_EQ(arena_.Count().kept_bytes, StagingArena::KEPT_MAX);
    EXPECT_EQ(ResidentBytes(memory_.Data(), StagingArena::ARENA_BYTES), StagingArena::KEPT_MAX);
}

TEST_F(StagingArenaTest, KeepsAsMuchAsItIsAllowed) {
    constexpr uint64_t ALLOWED = 2 * StagingArena::KEPT_MAX;
    arena_.KeepUpTo(ALLOWED);
    std::vector<char *> places;
    for (int i = 0; i < 4; i++) {
        places.push_back(arena_.Allocate(StagingArena::LENGTH_MAX));
    }
    for (char *place : places) {
        arena_.Free(place);
        EXPECT_LE(arena_.Count().kept_bytes, ALLOWED);
    }
    EXPECT_EQ(arena_.Count().kept_bytes, ALLOWED);
    arena_.KeepUpTo(0);
    arena_.Free(arena_.Allocate(StagingArena::UNIT_BYTES));
    EXPECT_EQ(arena_.Count().kept_bytes, StagingArena::KEPT_MAX);
}

TEST_F(StagingArenaTest, GivesBackWhatNobodyUsedSinceTheLastTime) {
    if (AdviceIsIgnored()) {
        GTEST_SKIP() << "an emulator ignores madvise()";
    }
    char *const first = arena_.Allocate(2 * CHUNK);
    char *const second = arena_.Allocate(CHUNK);
    arena_.Free(second);
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, CHUNK) << "it was in use since the last time";
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, 0u);
    EXPECT_EQ(ResidentBytes(memory_.Data(), StagingArena::ARENA_BYTES), 2 * CHUNK) << "which is in use";
    arena_.Free(first);
    arena_.GiveBackUnused();
    arena_.GiveBackUnused();
    EXPECT_EQ(ResidentBytes(memory_.Data(), StagingArena::ARENA_BYTES), 0u);
}

TEST_F(StagingArenaTest, WhatIsHeldAndNotInUseIsCountedAndBounded) {
    if (AdviceIsIgnored()) {
        GTEST_SKIP() << "an emulator ignores madvise()";
    }
    constexpr uint64_t ARENA = StagingArena::ARENA_BYTES, UNIT = StagingArena::UNIT_BYTES;
    std::vector<char *> units;
    for (uint64_t i = 0; i < ARENA / UNIT; i++) {
        units.push_back(arena_.Allocate(UNIT));
        std::memset(units.back(), 1, UNIT);
    }
    // One in each chunk stays in use.
    for (uint64_t i = 0; i < units.size(); i++) {
        if (i % (CHUNK / UNIT) != 3) {
            arena_.Free(units[i]);
        }
    }
    StagingArena::Counts counts = arena_.Count();
    EXPECT_EQ(counts.used_bytes, ARENA / (CHUNK / UNIT));
    EXPECT_LE(counts.kept_bytes, StagingArena::KEPT_MAX);
    EXPECT_EQ(ResidentBytes(memory_.Data(), ARENA), counts.used_bytes + counts.kept_bytes);
    // What nobody uses for a while goes, too, but not a part of what rings may know as a whole.
    arena_.GiveBackUnused();
    arena_.GiveBackUnused();
    counts = arena_.Count();
    EXPECT_EQ(counts.kept_bytes, StagingArena::LISTED_MAX - StagingArena::LISTED_MAX / (CHUNK / UNIT));
    EXPECT_EQ(ResidentBytes(memory_.Data(), ARENA), counts.used_bytes + counts.kept_bytes);
    for (uint64_t i = 3; i < units.size(); i += CHUNK / UNIT) {
        EXPECT_EQ(units[i][UNIT - 1], 1) << "what is in use was given back";
        arena_.Free(units[i]);
    }
    arena_.GiveBackUnused();
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, 0u);
    EXPECT_EQ(ResidentBytes(memory_.Data(), ARENA), 0u);
}

TEST_F(StagingArenaTest, WhatGotPagesBesideARunIsKeptUntilTheNextTime) {
    char *const listed = arena_.Allocate(StagingArena::LENGTH_MAX); // what rings may know goes as a whole
    ASSERT_EQ(StagingArena::LENGTH_MAX, StagingArena::LISTED_MAX);
    char *const unit = arena_.Allocate(StagingArena::UNIT_BYTES);
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, CHUNK - StagingArena::UNIT_BYTES);
    arena_.GiveBackUnused();
    EXPECT_EQ(arena_.Count().kept_bytes, 0u);
    arena_.Free(unit);
    arena_.Free(listed);
}

TEST_F(StagingArenaTest, FreeingTakesNoMemory) {
    std::vector<char *> places;
    for (int i = 0; i < 4; i++) {
        places.push_back(arena_.Allocate(StagingArena::LENGTH_MAX));
    }
    const OutOfMemoryAfter no_memory(0);
    for (char *place : places) {
        ASSERT_NO_THROW(arena_.Free(place));
    }
    ASSERT_NO_THROW(arena_.GiveBackUnused());
    ASSERT_NO_THROW(arena_.GiveBackUnused());
    EXPECT_FALSE(no_memory.Failed());
    EXPECT_EQ(arena_.Count().kept_bytes, 0u);
}

TEST(BufferMemoryTest, ServesBlocksAndRunsOfThem) {
    BufferMemory memory(BufferMemory::ADDRESS_MIN);
    EXPECT_EQ(memory.Allocate(0), nullptr);
    EXPECT_EQ(memory.Allocate(BLOCK - 1), nullptr);
    EXPECT_EQ(memory.Allocate(BLOCK + PAGE_BYTES), nullptr);
    EXPECT_EQ(memory.Allocate(33 * MIB), nullptr);
    char *const block = memory.Allocate(BLOCK), *const run = memory.Allocate(2 * BLOCK);
    EXPECT_TRUE(memory.Owns(block));
    EXPECT_TRUE(memory.Owns(run));
    EXPECT_FALSE(memory.Owns(&memory));
    EXPECT_EQ(memory.Count().blocks.used_bytes, BLOCK);
    EXPECT_EQ(memory.Count().staging.used_bytes, 2 * BLOCK);
    memory.Free(block);
    memory.Free(run);
    EXPECT_EQ(memory.Count().blocks.used_bytes + memory.Count().staging.used_bytes, 0u);
}

//! In a child of its own, whose exit status it returns: what it changes is of a whole process.
template <class WORK> int InChild(const WORK &work) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(work() ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

TEST(BufferMemoryTest, LeavesLimitedAddressesToTheProgram) {
    if (AddressLimitIsIgnored()) {
        GTEST_SKIP() << "an emulator ignores RLIMIT_AS and RLIMIT_DATA";
    }
    const uint64_t memory_bytes =
        static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const auto reserves_within = [](uint64_t bytes, __rlimit_resource what) {
        const rlimit limit = {bytes, bytes};
        return setrlimit(what, &limit) == 0 && BufferMemory::Reserve() != nullptr;
    };
    // Memory that a program may write to counts as its data, whether it is touched or not.
    for (const auto what : {RLIMIT_AS, RLIMIT_DATA}) {
        EXPECT_NE(InChild([&] { return reserves_within(memory_bytes, what); }), 0);
        EXPECT_NE(InChild([&] { return reserves_within(memory_bytes + memory_bytes / 2, what); }), 0)
            << "there would be room, but too little remains";
    }
}

TEST(BufferMemoryTest, MemoryThatTheProgramHasLockedCanBeFreed) {
    HugeMemory memory(CHUNK, HugeMemory::Pages::AS_ADVISED_LATER);
    if (mlock(memory.Data(), CHUNK) != 0) {
        GTEST_SKIP() << "memory cannot be locked (ulimit -l)";
    }
    PageBacking backing;
    BlockArena arena(memory.Data(), CHUNK, backing);
    arena.Free(arena.Allocate());
    arena.GiveBackUnused();
    arena.GiveBackUnused();
    EXPECT_EQ(arena.Count().kept_bytes, 0u);
    std::memset(arena.Allocate(), 1, BLOCK);
}

TEST(BufferMemoryTest, TheProcessGivesBackWhatItDoesNotUse) {
    BufferMemory *const memory = BufferMemory::OfProcess();
    ASSERT_NE(memory, nullptr);
    memory->Free(memory->Allocate(BLOCK));
    memory->Free(memory->Allocate(2 * BLOCK));
    // Without an end: a machine may be as slow as it likes.
    while (memory->Count().blocks.kept_bytes + memory->Count().staging.kept_bytes > 0) {
        usleep(10000);
    }
}

TEST(BufferMemoryTest, AChildOfTheProcessCanUseIt) {
    BufferMemory *const memory = BufferMemory::OfProcess();
    ASSERT_NE(memory, nullptr);
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop) {
            memory->Free(memory->Allocate(BLOCK));
            memory->Free(memory->Allocate(2 * BLOCK));
        }
    });
    for (int i = 0; i < 50; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60); // a lock that is never released ends the child, and so the test
            memory->Free(memory->Allocate(BLOCK));
            memory->Free(memory->Allocate(2 * BLOCK));
            _exit(0);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status));
    }
    stop = true;
    busy.join();
}

} // namespace
} // namespace rawduck
