#include "support/out_of_memory.hpp"
#include "volume/file/extent_map.hpp"
#include "volume/file/hole_set.hpp"
#include "volume/space/allocator.hpp"
#include "volume/space/space.hpp"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <random>

namespace rawduck {

namespace {

//! Of which nothing is in use.
Space SpaceOf(uint64_t begin, uint64_t end) {
    return Space(FreeSpace(SpaceMap::Area{begin, end}), ZoneCandidates(end));
}

} // namespace

TEST(ExtentMapTest, LocatesEveryUnitThroughGrowthRemapAndTruncate) {
    ExtentMap map;
    std::vector<uint64_t> oracle; // file unit -> target unit
    std::mt19937_64 random(3);
    uint64_t next = 1000;
    for (int step = 0; step < 3000; step++) {
        const int action = static_cast<int>(random() % 10);
        if (action < 7 || oracle.empty()) {
            const uint64_t units = 1 + random() % 50;
            next += random() % 3 == 0 ? 0 : 1000;
            map.Append(AllocationUnit{next}, units);
            for (uint64_t i = 0; i < units; i++) {
                oracle.push_back(next + i);
            }
            next += units;
        } else if (action < 8) {
            const uint64_t unit = random() % oracle.size();
            const uint64_t units = 1 + random() % std::min<uint64_t>(oracle.size() - unit, 20);
            next += 10;
            uint64_t moved = unit;
            for (const Extent &old : map.Slice(unit, unit + units)) {
                EXPECT_EQ(old.file_unit, moved);
                EXPECT_EQ(old.start, oracle[moved]);
                moved += old.units;
            }
            EXPECT_EQ(moved, unit + units);
            map.Remap({Extent{unit, next, units}});
            for (uint64_t i = 0; i < units; i++) {
                oracle[unit + i] = next + i;
            }
            next += units + 10;
        } else {
            const uint64_t units = oracle.size() - random() % std::min<uint64_t>(oracle.size(), 100);
            uint64_t cut = 0;
            for (const Extent &extent : map.Truncate(units)) {
                EXPECT_EQ(extent.start, oracle[extent.file_unit]);
                cut += extent.units;
            }
            EXPECT_EQ(cut, oracle.size() - units);
            oracle.resize(units);
        }
        ASSERT_EQ(map.Units(), oracle.size());
        for (int probe = 0; probe < 20 && !oracle.empty(); probe++) {
            const uint64_t unit = random() % oracle.size();
            uint64_t contiguous = 0;
            ASSERT_EQ(map.Locate(unit * ALLOCATION_UNIT_BYTES + 5, contiguous),
                      oracle[unit] * ALLOCATION_UNIT_BYTES + 5);
            const uint64_t last = unit + (contiguous + 5) / ALLOCATION_UNIT_BYTES - 1;
            ASSERT_EQ(oracle[last], oracle[unit] + (last - unit));
            ASSERT_TRUE(last + 1 == oracle.size() || oracle[last + 1] != oracle[last] + 1)
                << "what continues on the target is one extent";
        }
    }
}

TEST(ExtentMapTest, WhatIsMovedBackTogetherIsOneExtentAgain) {
    ExtentMap map;
    map.Append(AllocationUnit{100}, 64);
    for (uint64_t unit = 1; unit < 64; unit += 2) {
        map.Remap({Extent{unit, 1000 + 2 * unit, 1}});
    }
    EXPECT_EQ(map.Extents().size(), 64u);
    for (uint64_t unit = 1; unit < 64; unit += 2) {
        map.Remap({Extent{unit, 100 + unit, 1}});
    }
    ASSERT_EQ(map.Extents().size(), 1u);
    EXPECT_EQ(map.Extents()[0].start, 100u);
    EXPECT_EQ(map.Extents()[0].units, 64u);
}

// Whoever wrote the pieces gives all of them back when the file does not lie there in the end.
TEST(ExtentMapTest, WithoutMemoryNothingLiesElsewhere) {
    int failures = 0;
    for (int64_t step = 0; step < 10; step++) {
        ExtentMap map;
        map.Append(AllocationUnit{100}, 4);
        map.Append(AllocationUnit{502}, 4); // the first piece will end where this begins
        bool failed = false;
        {
            const OutOfMemoryAfter limit(step);
            try {
                map.Remap({Extent{2, 500, 2}, Extent{4, 300, 2}});
            } catch (const std::bad_alloc &) {
                failed = true;
            }
        }
        failures += failed ? 1 : 0;
        uint64_t contiguous = 0;
        const std::vector<uint64_t> there =
            failed ? std::vector<uint64_t>{102, 103, 502, 503} : std::vector<uint64_t>{500, 501, 300, 301};
        for (uint64_t unit = 2; unit < 6; unit++) {
            EXPECT_EQ(map.Locate(unit * ALLOCATION_UNIT_BYTES, contiguous) / ALLOCATION_UNIT_BYTES,
                      there[unit - 2])
                << step;
        }
    }
    EXPECT_GT(failures, 1);
}

TEST(AllocatorTest, NeverHandsOutAUnitTwiceAndGetsEverythingBack) {
    constexpr uint64_t BEGIN = 100, END = 5100;
    Allocator allocator(AllocationUnit{BEGIN}, AllocationUnit{END});
    std::vector<bool> taken(END, false);
    std::vector<Allocator::Result> held;
    std::mt19937_64 random(4);
    for (int step = 0; step < 20000; step++) {
        if (random() % 2 == 0 || held.empty()) {
            const AllocationUnit hint =
                held.empty() ? AllocationUnit{0} : held.back().start + held.back().units;
            const Allocator::Result result =
                allocator.Allocate(1 + random() % 60, hint, random() % 2 == 0, 0);
            for (uint64_t i = 0; i < result.units; i++) {
                ASSERT_FALSE(taken[Index(result.start) + i]);
                taken[Index(result.start) + i] = true;
            }
            if (result.units > 0) {
                held.push_back(result);
            }
        } else {
            std::swap(held[random() % held.size()], held.back());
            const Allocator::Result result = held.back();
            held.pop_back();
            ASSERT_TRUE(allocator.Free(result.start, result.units));
            ASSERT_FALSE(allocator.Free(result.start, result.units)) << "freed twice";
            for (uint64_t i = 0; i < result.units; i++) {
                taken[Index(result.start) + i] = false;
            }
        }
        const uint64_t free = static_cast<uint64_t>(std::count(taken.begin() + BEGIN, taken.end(), false));
        ASSERT_EQ(allocator.FreeUnits(), free);
    }
    for (const Allocator::Result &result : held) {
        ASSERT_TRUE(allocator.Free(result.start, result.units));
    }
    EXPECT_EQ(allocator.LargestFree(), END - BEGIN) << "free extents are merged";
}

TEST(AllocatorTest, KeptUnitsStayFreeAndHintContinues) {
    Allocator allocator(AllocationUnit{0}, AllocationUnit{100});
    const Allocator::Result first = allocator.Allocate(40, AllocationUnit{0}, false, 10);
    EXPECT_EQ(Index(allocator.Allocate(5, first.start + first.units, false, 10).start), 40u);
    EXPECT_EQ(allocator.Allocate(1000, AllocationUnit{0}, false, 10).units, 45u);
    EXPECT_EQ(allocator.Allocate(1, AllocationUnit{0}, false, 10).units, 0u);
    EXPECT_EQ(allocator.Allocate(1, AllocationUnit{0}, false, 0).units, 1u);
    EXPECT_TRUE(allocator.Claim(AllocationUnit{99}, 1));
    EXPECT_FALSE(allocator.Claim(AllocationUnit{99}, 1));
}

TEST(HoleSetTest, MatchesAByteMap) {
    HoleSet holes;
    std::vector<bool> oracle(4000, false);
    std::mt19937_64 random(5);
    uint64_t size = 0;
    for (int step = 0; step < 400 && size < 3900; step++) {
        if (random() % 2 == 0) {
            const uint64_t length = 1 + random() % 20;
            holes.Add(size, length);
            std::fill(oracle.begin() + size, oracle.begin() + size + length, true);
            size += length;
        } else {
            const uint64_t offset = random() % (size + 1), length = random() % 30;
            holes.Remove(offset, length);
            std::fill(oracle.begin() + offset, oracle.begin() + std::min<uint64_t>(4000, offset + length),
                      false);
        }
        std::string bytes(4000, 'x');
        const uint64_t from = random() % 2000;
        holes.ZeroFill(&bytes[from], from, 1500);
        for (uint64_t i = 0; i < 4000; i++) {
            ASSERT_EQ(bytes[i] == '\0', oracle[i] && i >= from && i < from + 1500) << i;
        }
    }
}

// Space is given back on ways that must not fail, such as behind a record that is durable.
TEST(SpaceTest, WhatIsFreedWithoutMemoryIsFreeAllTheSame) {
    int failures = 0;
    for (int64_t step = 0; step < 10; step++) {
        Space space = SpaceOf(100, 5000);
        std::vector<Extent> freed, kept;
        // Of what is all in use there is no bitmap, so the first that is freed needs memory for one.
        const Space::Piece rest = space.Allocate(4900 - 160, AllocationUnit{0}, false, SpaceUse::HEADER);
        kept.push_back(Extent{0, Index(rest.start), rest.units});
        for (int i = 0; i < 20; i++) {
            const Space::Piece taken = space.Allocate(8, AllocationUnit{0}, false, SpaceUse::HEADER);
            (i % 2 == 0 ? freed : kept).push_back(Extent{0, Index(taken.start), taken.units});
        }
        {
            const OutOfMemoryAfter limit(step);
            ASSERT_NO_THROW(space.Free(freed)) << step;
            failures += limit.Failed() ? 1 : 0;
        }
        EXPECT_EQ(space.FreeUnits(), 80u) << step;
        space.Free(kept);
        const Space::Piece all = space.Allocate(UINT64_MAX, AllocationUnit{0}, false, SpaceUse::HEADER);
        EXPECT_EQ(all.units, space.TotalUnits()) << step;
    }
    EXPECT_GT(failures, 0);
}

// Whoever needs a long extent is told to wait for what the device is being told of, and not for what is not there.
TEST(SpaceTest, ALongExtentOrNone) {
    using std::chrono::milliseconds;
    constexpr AllocationUnit BEGIN{100};
    Space space = SpaceOf(100, 1100);
    const auto allocate = [&](uint64_t units, AllocationUnit hint) {
        return space.AllocateLong(units, hint, units, SpaceUse::HEADER, milliseconds(1));
    };
    const std::vector<Extent> claimed = space.ClaimFree({0, 200, 800}, 1);
    EXPECT_FALSE(allocate(500, BEGIN)) << "there may be one soon";
    EXPECT_EQ(space.FreeUnits(), 1000u) << "what is too short stays free";
    EXPECT_EQ(allocate(50, BEGIN)->units, 50u) << "nobody waits for what is there";
    space.GiveBack(claimed);
    EXPECT_EQ(allocate(951, BEGIN)->units, 0u) << "there is none";
    EXPECT_EQ(allocate(500, BEGIN)->units, 500u);
    space.Free({{0, 100, 3}});
    EXPECT_EQ(Index(allocate(100, BEGIN)->start), 650u) << "behind the hint there are only three";
}

// A checkpoint replaces blocks, and ends the log: whatever logs take, it must find two blocks, and may add some.
TEST(SpaceTest, WhatLogsLeaveIsEnoughForACheckpoint) {
    constexpr uint64_t BLOCK = 256 * KIB / ALLOCATION_UNIT_BYTES;
    for (const uint64_t mebibytes : {16, 20, 64, 256, 4096}) {
        SCOPED_TRACE(mebibytes);
        Space space = SpaceOf(100, 100 + mebibytes * MIB / ALLOCATION_UNIT_BYTES);
        const auto all = [&](SpaceUse use) {
            return space.Allocate(UINT64_MAX, AllocationUnit{0}, false, use).units;
        };
        const auto last = [&](uint64_t units, SpaceUse use) {
            return space.AllocateLast(units, AllocationUnit{0}, use);
        };
        EXPECT_GT(all(SpaceUse::CONTENT), 0u);
        const Space::Piece log = space.Allocate(4, AllocationUnit{0}, false, SpaceUse::LOG);
        EXPECT_EQ(log.units, 4u);
        EXPECT_GT(all(SpaceUse::LOG), 0u) << "logs have something of their own";
        EXPECT_EQ(last(1024, SpaceUse::LAST_CONTENT).units, 0u) << "all or nothing";
        EXPECT_EQ(last(BLOCK, SpaceUse::LAST_CONTENT).units, BLOCK);
        while (last(BLOCK, SpaceUse::LAST_CONTENT).units > 0) {
        }
        space.Free({Extent{0, Index(log.start), log.units}});
        EXPECT_EQ(all(SpaceUse::LOG), 4u) << "databases have taken nothing from logs";
        EXPECT_EQ(last(4, SpaceUse::LAST_LOG).units, 4u) << "whatever databases took";
        EXPECT_EQ(last(1, SpaceUse::LAST_LOG).units, 0u);
        EXPECT_GE(all(SpaceUse::REPLACEMENT), 2 * BLOCK);
        EXPECT_GE(all(SpaceUse::HEADER), 1u);
        EXPECT_EQ(space.FreeUnits(), 0u);
    }
}

// A load asks for each block as a write does: first as ever, then for the last.
TEST(SpaceTest, ALoadLeavesLogsTheirShare) {
    constexpr uint64_t BLOCK = 256 * KIB / ALLOCATION_UNIT_BYTES;
    for (const uint64_t mebibytes : {64, 256, 4096}) {
        SCOPED_TRACE(mebibytes);
        Space space = SpaceOf(100, 100 + mebibytes * MIB / ALLOCATION_UNIT_BYTES);
        const auto take = [&](uint64_t units, SpaceUse use) {
            return space.Allocate(units, AllocationUnit{0}, false, use).units;
        };
        const auto take_all = [&](SpaceUse use) {
            uint64_t units = 0;
            while (const uint64_t more = take(UINT64_MAX, use)) { // an extent each
                units += more;
            }
            return units;
        };
        EXPECT_GT(take_all(SpaceUse::CONTENT), 0u);
        const uint64_t for_logs = space.FreeUnits() - space.KeptUnits(SpaceUse::LOG);
        EXPECT_GT(for_logs, 0u);
        uint64_t blocks = 0;
        while (take(BLOCK, SpaceUse::CONTENT) == 0 &&
               space.AllocateLast(BLOCK, AllocationUnit{0}, SpaceUse::LAST_CONTENT).units > 0) {
            blocks++;
        }
        EXPECT_EQ(blocks, 2u);
        EXPECT_EQ(take_all(SpaceUse::LOG), for_logs);
    }
}

TEST(SpaceTest, WhatIsKeptForTheLastIsRestored) {
    Space space = SpaceOf(100, 100 + 256 * MIB / ALLOCATION_UNIT_BYTES);
    const auto last = [&] { return space.AllocateLast(4, AllocationUnit{0}, SpaceUse::LAST_LOG); };
    const auto extent = [](const Space::Piece &piece) {
        return std::vector<Extent>{Extent{0, Index(piece.start), piece.units}};
    };
    const Space::Piece taken = space.Allocate(UINT64_MAX, AllocationUnit{0}, false, SpaceUse::LOG);
    const Space::Piece first = last();
    EXPECT_EQ(first.units, 4u);
    EXPECT_EQ(last().units, 0u);
    space.FreeLast(extent(first), SpaceUse::LAST_LOG);
    EXPECT_EQ(last().units, 4u) << "what was not used";
    EXPECT_EQ(last().units, 0u);
    space.Free(extent(taken));
    EXPECT_GT(space.Allocate(UINT64_MAX, AllocationUnit{0}, false, SpaceUse::LOG).units, 0u);
    EXPECT_EQ(last().units, 4u) << "what is kept was whole again";
}

TEST(SpaceDeathTest, FreeingTwiceEndsTheProcess) {
    Space space = SpaceOf(100, 5000);
    const Space::Piece taken = space.Allocate(8, AllocationUnit{0}, false, SpaceUse::HEADER);
    const std::vector<Extent> extents{Extent{0, Index(taken.start), taken.units}};
    space.Free(extents);
    EXPECT_DEATH(space.Free(extents), "invariant broken: space is freed once");
}

TEST(HoleSetDeathTest, OverlappingHolesEndTheProcess) {
    HoleSet holes;
    holes.Add(100, 50);
    EXPECT_DEATH(holes.Add(140, 20), "invariant broken: holes do not overlap");
}

TEST(ExtentMapDeathTest, WhatIsNotCoveredCannotBeFound) {
    ExtentMap map;
    map.Append(AllocationUnit{100}, 4);
    uint64_t contiguous = 0;
    EXPECT_DEATH(map.Locate(4 * ALLOCATION_UNIT_BYTES, contiguous), "invariant broken: what is looked for");
}

TEST(SpaceTest, SharedSpaceIsFreeWithItsLastHolder) {
    Space space = SpaceOf(100, 1100);
    const uint64_t start = Index(space.Allocate(100, AllocationUnit{0}, false, SpaceUse::HEADER).start);
    const Extent all{7, start, 100}, middle{0, start + 50, 10};
    const uint64_t free = space.FreeUnits();
    EXPECT_FALSE(space.AnyShared(all));
    space.Share({all, middle});
    EXPECT_TRUE(space.AnyShared({0, start + 99, 1}));
    space.Free({all});
    EXPECT_EQ(space.FreeUnits(), free);
    const std::vector<Extent> parts = space.NotShared(all);
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(parts[0].units, 50u);
    EXPECT_EQ(parts[1].file_unit, 67u);
    EXPECT_EQ(parts[1].start, start + 60);
    EXPECT_EQ(parts[1].units, 40u);
    space.Free({all});
    EXPECT_EQ(space.FreeUnits(), free + 90);
    space.Free({middle});
    EXPECT_EQ(space.FreeUnits(), free + 100);
    EXPECT_FALSE(space.AnyShared(all));
}

// Without memory to record it, what a holder gives up is given up later, and all of it once.
TEST(SpaceTest, SharedSpaceIsGivenUpWithoutMemory) {
    for (int64_t allocations = 0; allocations < 8; allocations++) {
        Space space = SpaceOf(100, 1100);
        const uint64_t start = Index(space.Allocate(100, AllocationUnit{0}, false, SpaceUse::HEADER).start);
        const uint64_t free = space.FreeUnits();
        space.Share({{0, start + 20, 20}, {0, start + 60, 20}});
        {
            const std::vector<Extent> most{{0, start + 30, 40}};
            const OutOfMemoryAfter limit(allocations);
            space.Free(most);
        }
        space.Free({{0, start, 30}, {0, start + 70, 30}});
        EXPECT_EQ(space.FreeUnits(), free + 60) << allocations;
        space.Free({{0, start + 20, 20}, {0, start + 60, 20}});
        EXPECT_EQ(space.FreeUnits(), free + 100) << allocations;
    }
}

} // namespace rawduck
