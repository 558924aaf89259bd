#include "volume/spill/spill_memory.hpp"

#include "common/error.hpp"
#include "support/out_of_memory.hpp"
#include "support/test_support.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t MAPPED_BLOCK = 256 * KIB;
constexpr uint64_t BLOCKS_IN_MEMORY = SpillLimits::MAPPED_BYTES_MAX / MAPPED_BLOCK;

//! Bytes that the process has in files in memory.
uint64_t BytesInFiles() {
    uint64_t bytes = 0;
    for (int fd = 0; fd < 256; fd++) {
        std::array<char, 256> target{};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        struct stat status{};
        if (readlink(link.c_str(), target.data(), target.size() - 1) > 0 &&
            std::string(target.data()).find("memfd:rawduck-spill") != std::string::npos &&
            fstat(fd, &status) == 0) {
            bytes += static_cast<uint64_t>(status.st_blocks) * 512;
        }
    }
    return bytes;
}

class SpillMemoryTest : public ::testing::Test {
  protected:
    //! Takes a block and fills it.
    std::optional<uint64_t> Fill(SpillMemory &memory, uint32_t seed, uint64_t length = MAPPED_BLOCK) {
        const std::optional<uint64_t> offset = memory.Take(length);
        if (offset) {
            EXPECT_TRUE(memory.Write(*offset, Pattern(length, seed).data(), length));
        }
        return offset;
    }
    static bool Has(const SpillMemory &memory, uint64_t offset, uint32_t seed) {
        std::vector<char> data(MAPPED_BLOCK);
        memory.Read(offset, data.data(), MAPPED_BLOCK);
        return data == Pattern(MAPPED_BLOCK, seed);
    }
    //! The offsets of blocks 0, 1, 2, ..., each with its number as the seed.
    std::vector<uint64_t> FillBlocks(SpillMemory &memory, uint64_t blocks) {
        std::vector<uint64_t> offsets;
        for (uint32_t i = 0; i < blocks; i++) {
            offsets.push_back(Fill(memory, i).value());
        }
        return offsets;
    }
    void GiveBlocks(SpillMemory &memory, const std::vector<uint64_t> &offsets) {
        for (const uint64_t offset : offsets) {
            memory.Give(offset, MAPPED_BLOCK);
        }
    }

    uint64_t available_bytes_ = GIB;
    MemorySupply supply_{[this] {
        const uint64_t used = std::min(available_bytes_, BytesInFiles());
        return std::vector<MemoryLevel>{{"machine", GIB, available_bytes_ - used, std::nullopt}};
    }};
};

TEST_F(SpillMemoryTest, GrowsIntoAQuarterOfWhatIsFreeAndNoFurther) {
    available_bytes_ = 464 * MIB; // 400 MiB beyond the reserve
    SpillMemory memory(SpillLimits::Free(supply_));
    std::vector<uint64_t> offsets;
    while (const std::optional<uint64_t> offset = Fill(memory, static_cast<uint32_t>(offsets.size()))) {
        offsets.push_back(*offset);
        ASSERT_LE(BytesInFiles(), 100 * MIB);
    }
    EXPECT_GE(memory.GrownBytes(), 90 * MIB);
    EXPECT_EQ(memory.GrownBytes(), BytesInFiles());
    for (size_t i = 0; i < offsets.size(); i++) {
        ASSERT_TRUE(Has(memory, offsets[i], static_cast<uint32_t>(i)));
    }
    GiveBlocks(memory, offsets);
    EXPECT_EQ(memory.GrownBytes(), BytesInFiles()) << "pages are kept, to be used again";
    memory.Shrink();
    EXPECT_EQ(memory.HeldBytes(), 0u);
    EXPECT_EQ(BytesInFiles(), 0u);
}

TEST_F(SpillMemoryTest, PagesAreUsedAgain) {
    SpillMemory memory(SpillLimits::Free(supply_));
    const std::vector<uint64_t> kept = FillBlocks(memory, BLOCKS_IN_MEMORY);
    for (int i = 0; i < 20; i++) {
        GiveBlocks(memory, {Fill(memory, 1).value()});
    }
    EXPECT_EQ(memory.GrownBytes(), MAPPED_BLOCK);
    available_bytes_ = 0;
    EXPECT_TRUE(Fill(memory, 1)) << "that takes nothing from anybody";
}

//! All of it that nobody has taken, up to `bytes`. Returns how much.
uint64_t Release(SpillMemory &memory, uint64_t bytes) {
    uint64_t released = 0;
    while (released < bytes) {
        const std::optional<SpillMemory::Part> part = memory.TakeUnused(bytes - released);
        if (!part) {
            break;
        }
        memory.GiveToSystem(*part);
        memory.IsGone(*part);
        released += part->bytes;
    }
    return released;
}

TEST_F(SpillMemoryTest, ReleasesWhatIsNotTaken) {
    SpillMemory memory(SpillLimits::Free(supply_));
    const std::vector<uint64_t> offsets = FillBlocks(memory, BLOCKS_IN_MEMORY + 8);
    EXPECT_EQ(Release(memory, GIB), 0u);
    GiveBlocks(memory, {offsets.begin() + BLOCKS_IN_MEMORY, offsets.begin() + BLOCKS_IN_MEMORY + 4});
    EXPECT_EQ(Release(memory, 2 * MAPPED_BLOCK), 2 * MAPPED_BLOCK);
    EXPECT_EQ(Release(memory, GIB), 2 * MAPPED_BLOCK);
    EXPECT_EQ(memory.GrownBytes(), 4 * MAPPED_BLOCK);
    EXPECT_EQ(BytesInFiles(), 4 * MAPPED_BLOCK);
    for (uint32_t i = BLOCKS_IN_MEMORY + 4; i < BLOCKS_IN_MEMORY + 8; i++) {
        EXPECT_TRUE(Has(memory, offsets[i], i)) << "the others are what they were";
    }
}

TEST_F(SpillMemoryTest, NothingIsTakenAwayFromWhoGivesItToTheSystem) {
    SpillMemory memory(SpillLimits::Free(supply_));
    const std::vector<uint64_t> offsets = FillBlocks(memory, BLOCKS_IN_MEMORY + 8);
    GiveBlocks(memory, {offsets.begin() + BLOCKS_IN_MEMORY, offsets.begin() + BLOCKS_IN_MEMORY + 4});
    const SpillMemory::Part part = memory.TakeUnused(2 * MAPPED_BLOCK).value();
    GiveBlocks(memory, {offsets.begin(), offsets.begin() + BLOCKS_IN_MEMORY});
    GiveBlocks(memory, {offsets.begin() + BLOCKS_IN_MEMORY + 4, offsets.end()});
    memory.Shrink();
    EXPECT_EQ(BytesInFiles(), 8 * MAPPED_BLOCK);
    memory.GiveToSystem(part);
    EXPECT_EQ(BytesInFiles(), 6 * MAPPED_BLOCK);
    memory.IsGone(part);
    EXPECT_EQ(memory.HeldBytes(), 0u) << "nothing was taken any more";
    EXPECT_EQ(BytesInFiles(), 0u);
}

TEST_F(SpillMemoryTest, ReleasesWhatWasNotTakenAtAnyTime) {
    SpillMemory memory(SpillLimits::Free(supply_));
    const std::vector<uint64_t> offsets = FillBlocks(memory, BLOCKS_IN_MEMORY + 8);
    GiveBlocks(memory, {offsets.begin() + BLOCKS_IN_MEMORY, offsets.end()});
    EXPECT_EQ(Release(memory, memory.LongUnusedBytes()), 0u) << "they were taken a moment ago";
    GiveBlocks(memory, {Fill(memory, 1).value()});
    EXPECT_EQ(Release(memory, memory.LongUnusedBytes()), 7 * MAPPED_BLOCK) << "one was taken meanwhile";
    EXPECT_EQ(Release(memory, memory.LongUnusedBytes()), MAPPED_BLOCK);
    EXPECT_EQ(memory.GrownBytes(), 0u);
    EXPECT_EQ(BytesInFiles(), 0u);
}

TEST_F(SpillMemoryTest, ShortPiecesAreExchangedForALongOne) {
    SpillMemory memory(SpillLimits::Free(supply_));
    FillBlocks(memory, BLOCKS_IN_MEMORY);
    std::vector<uint64_t> pieces;
    for (uint32_t i = 0; i < 16; i++) {
        pieces.push_back(Fill(memory, i, MAPPED_BLOCK / 4).value());
    }
    for (size_t i = 0; i < pieces.size(); i += 2) {
        memory.Give(pieces[i], MAPPED_BLOCK / 4);
    }
    available_bytes_ = 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(120)); // what was known is outdated then
    EXPECT_TRUE(Fill(memory, 1));
    EXPECT_TRUE(Fill(memory, 2));
    EXPECT_FALSE(Fill(memory, 3));
    EXPECT_EQ(memory.GrownBytes(), 4 * MAPPED_BLOCK);
}

TEST_F(SpillMemoryTest, AFixedSizeIsAllThatItTakes) {
    for (const uint64_t bytes_max : {MIB, 28 * MIB, 56 * MIB, 57 * MIB, 100 * MIB}) {
        SpillMemory memory(SpillLimits::Fixed(bytes_max));
        uint64_t taken = 0;
        while (Fill(memory, 1)) {
            taken += MAPPED_BLOCK;
        }
        if (memory.GrownBytes() > 0) {
            memory.TransferArea(SpillMemory::Transfers::WRITES);
            memory.TransferArea(SpillMemory::Transfers::READS);
        }
        EXPECT_EQ(taken, bytes_max <= 56 * MIB ? bytes_max : bytes_max - 4 * MIB);
        EXPECT_EQ(memory.CapacityBytes(), bytes_max);
        EXPECT_LE(memory.HeldBytes(), bytes_max);
    }
    SpillMemory none(SpillLimits::Fixed(0));
    EXPECT_FALSE(none.Take(4096));
}

TEST_F(SpillMemoryTest, WhatTheSystemRefusesIsNoMemory) {
    rlimit usual{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
    const rlimit tight{MAPPED_BLOCK, usual.rlim_max};
    SpillMemory memory(SpillLimits::Free(supply_));
    FillBlocks(memory, BLOCKS_IN_MEMORY + 64);
    const uint64_t beyond = memory.Take(MAPPED_BLOCK).value();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
    EXPECT_FALSE(memory.Write(beyond, Pattern(MAPPED_BLOCK, 1).data(), MAPPED_BLOCK))
        << "the kernel would end the process";
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
    EXPECT_TRUE(memory.Write(beyond, Pattern(MAPPED_BLOCK, 1).data(), MAPPED_BLOCK));

    rlimit descriptors{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
    const rlimit few{0, descriptors.rlim_max};
    SpillMemory other(SpillLimits::Free(supply_));
    FillBlocks(other, BLOCKS_IN_MEMORY);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    EXPECT_FALSE(other.Take(MAPPED_BLOCK));
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
    EXPECT_TRUE(other.Take(MAPPED_BLOCK));
}

TEST_F(SpillMemoryTest, WhereverMemoryRunsOutAllIsThereAgainWhenNothingIsTaken) {
    for (int64_t before = 0; before < 60; before++) {
        SpillMemory memory(SpillLimits::Fixed(64 * MIB));
        std::vector<uint64_t> offsets;
        offsets.reserve(BLOCKS_IN_MEMORY + 6);
        {
            const OutOfMemoryAfter failure(before);
            for (uint64_t i = 0; i < BLOCKS_IN_MEMORY + 6; i++) {
                if (const std::optional<uint64_t> offset = memory.Take(MAPPED_BLOCK)) {
                    offsets.push_back(*offset);
                }
            }
            for (size_t i = 0; i < offsets.size(); i += 2) {
                memory.Give(offsets[i], MAPPED_BLOCK);
            }
            Release(memory, 2 * MAPPED_BLOCK);
        }
        for (size_t i = 1; i < offsets.size(); i += 2) {
            memory.Give(offsets[i], MAPPED_BLOCK);
        }
        for (uint64_t taken = 0; taken < 60 * MIB; taken += MAPPED_BLOCK) {
            EXPECT_TRUE(memory.Take(MAPPED_BLOCK)) << "allocation " << before;
        }
    }
}

} // namespace
} // namespace rawduck
