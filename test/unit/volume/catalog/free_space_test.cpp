//! Free space in groups against a list of all units, which the same is taken from and given back to.

#include "common/units.hpp"
#include "support/test_support.hpp"
#include "volume/catalog/free_space.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace rawduck {

namespace {

constexpr SpaceMap::Area WIDE_AREA{1000, 4 * GROUP_UNITS + 333};

//! Groups as a mount finds them: with nothing in use, or some of it.
struct Found {
    explicit Found(uint64_t seed) {
        std::mt19937_64 random(seed);
        for (uint64_t group = 0; group < WIDE_AREA.Groups(); group++) {
            maps.emplace_back(group, WIDE_AREA);
            for (int i = 0; seed > 0 && i < 50; i++) {
                const auto first = static_cast<uint32_t>(random() % GROUP_UNITS);
                maps.back().Set(first, std::min<uint32_t>(GROUP_UNITS - first, random() % 400), true);
            }
            summaries.push_back(maps.back().Summary());
        }
    }
    FreeSpace Space() {
        return FreeSpace(WIDE_AREA, summaries, [this](uint64_t group) { return maps[group]; });
    }
    std::vector<bool> Used() const {
        std::vector<bool> used;
        for (uint64_t unit = 0; unit < WIDE_AREA.Groups() * GROUP_UNITS; unit++) {
            used.push_back(maps[GroupOf(unit)].AllUsed(static_cast<uint32_t>(unit % GROUP_UNITS), 1));
        }
        return used;
    }
    std::vector<SpaceMap> maps;
    std::vector<GroupSummary> summaries;
};

//! Free runs.
struct Longest {
    explicit Longest(const std::vector<bool> &used) {
        uint64_t run = 0, run_in_group = 0;
        for (uint64_t unit = 0; unit < used.size(); unit++) {
            run_in_group = unit % GROUP_UNITS == 0 ? 0 : run_in_group;
            run = used[unit] ? 0 : run + 1;
            run_in_group = used[unit] ? 0 : run_in_group + 1;
            anywhere = std::max(anywhere, run);
            in_group = std::max(in_group, run_in_group);
        }
    }
    uint64_t anywhere = 0, in_group = 0;
};

GroupSummary SlowSummary(const SpaceMap &map) {
    uint32_t free_units = 0, longest = 0, run = 0;
    for (uint32_t unit = 0; unit < GROUP_UNITS; unit++) {
        run = map.AllFree(unit, 1) ? run + 1 : 0;
        free_units += run > 0 ? 1 : 0;
        longest = std::max(longest, run);
    }
    return {static_cast<uint16_t>(free_units), static_cast<uint16_t>(longest)};
}

} // namespace

TEST(SpaceMapTest, SummariesAreThoseOfTheBits) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 300; round++) {
        SpaceMap map(round % 6, WIDE_AREA);
        ASSERT_TRUE(map.Summary() == SpaceMap::EmptySummary(round % 6, WIDE_AREA));
        const uint64_t pieces = random() % 300, length = 1 + random() % (round % 3 ? 90 : 3000);
        for (uint64_t i = 0; i < pieces; i++) {
            const auto first = static_cast<uint32_t>(random() % GROUP_UNITS);
            map.Set(first, std::min<uint32_t>(GROUP_UNITS - first, random() % length), i % 4 != 0);
        }
        ASSERT_TRUE(map.Summary() == SlowSummary(map)) << round;
        SpaceMap copy(round % 6, WIDE_AREA);
        copy.Load(map.Bytes());
        ASSERT_EQ(copy.Bytes(), map.Bytes());
    }
    SpaceMap map(1, WIDE_AREA);
    EXPECT_TRUE(map.Empty());
    EXPECT_TRUE((map.Summary() == GroupSummary{GROUP_UNITS, GROUP_UNITS}));
    map.Set(0, GROUP_UNITS, true);
    EXPECT_TRUE(map.Full());
    EXPECT_TRUE((map.Summary() == GroupSummary{0, 0}));
}

TEST(FreeSpaceTest, GivesWhatIsFreeAndOnlyOnce) {
    for (uint64_t seed = 0; seed < 6; seed += OneSeedIn()) {
        Found found(seed);
        FreeSpace space = found.Space();
        std::vector<bool> used = found.Used();
        std::vector<Extent> taken;
        std::mt19937_64 random(seed);
        const auto mark = [&](uint64_t start, uint64_t units, bool now) {
            for (uint64_t unit = start; unit < start + units; unit++) {
                ASSERT_NE(used[unit], now) << unit;
                used[unit] = now;
            }
        };
        for (int step = 0; step < 1500; step++) {
            const uint64_t kind = random() % 10;
            const uint64_t wanted = 1 + random() % (kind == 0 ? 3 * GROUP_UNITS : 500);
            if (kind < 6) {
                const uint64_t hint = random() % used.size();
                const bool continues = hint >= WIDE_AREA.start && hint < WIDE_AREA.end && !used[hint];
                const Longest longest(step % 16 == 0 ? used : std::vector<bool>());
                if (step % 16 == 0) {
                    ASSERT_EQ(space.LargestFree(), longest.anywhere);
                }
                const bool any = space.FreeUnits() > 0;
                const Extent extent = space.Allocate(wanted, hint, random() % 2 == 0, 0);
                ASSERT_EQ(extent.units > 0, any);
                ASSERT_LE(extent.units, wanted);
                if (continues) {
                    ASSERT_EQ(extent.start, hint);
                } else {
                    ASSERT_GE(extent.units, std::min(wanted, longest.in_group));
                }
                mark(extent.start, extent.units, true);
                taken.push_back(extent);
            } else if (kind == 6) {
                const uint32_t units = 1u << random() % 10;
                const uint64_t start = space.AllocateAligned(units);
                if (start == 0) {
                    for (uint64_t at = 0; at < used.size(); at += units) {
                        ASSERT_TRUE(std::find(used.begin() + at, used.begin() + at + units, true) !=
                                    used.begin() + at + units);
                    }
                    continue;
                }
                ASSERT_EQ(start % units, 0u);
                mark(start, units, true);
                taken.push_back(Extent{0, start, units});
            } else if (!taken.empty()) {
                std::swap(taken[random() % taken.size()], taken.back());
                const Extent extent = taken.back();
                taken.pop_back();
                if (extent.units > 0) {
                    ASSERT_TRUE(space.Free(extent.start, extent.units));
                    ASSERT_FALSE(space.Free(extent.start, extent.units)) << "given back twice";
                    mark(extent.start, extent.units, false);
                }
            }
            if (step % 16 == 0) {
                ASSERT_EQ(space.FreeUnits(),
                          static_cast<uint64_t>(std::count(used.begin(), used.end(), false)));
            }
        }
        uint64_t free_units = 0;
        for (const Extent &part : space.FreeParts(0, UINT32_MAX)) {
            free_units += part.units;
            for (uint64_t unit = part.start; unit < part.start + part.units; unit++) {
                ASSERT_FALSE(used[unit]);
            }
        }
        EXPECT_EQ(free_units, space.FreeUnits());
    }
}

TEST(FreeSpaceTest, KeepsWhatIsAskedForAndTakesLittleMemory) {
    Found found(0);
    FreeSpace space = found.Space();
    const uint64_t total = WIDE_AREA.end - WIDE_AREA.start;
    EXPECT_EQ(space.FreeUnits(), total);
    EXPECT_EQ(space.LargestFree(), total);
    EXPECT_EQ(space.Allocate(10, 0, false, total).units, 0u);
    EXPECT_EQ(space.Allocate(10, 0, false, total - 3).units, 3u);
    EXPECT_EQ(space.Allocate(10, 0, false, 0).start, WIDE_AREA.start + 3);
    EXPECT_EQ(space.Allocate(10, 0, true, 0).start, WIDE_AREA.end - 10);
    EXPECT_EQ(space.MixedGroups(), 2u) << "at both ends";
    EXPECT_TRUE(space.Claim(2 * GROUP_UNITS - 5, 10)) << "of two groups";
    EXPECT_FALSE(space.Claim(2 * GROUP_UNITS + 4, 2));
    EXPECT_FALSE(space.Claim(WIDE_AREA.start - 1, 2));
    EXPECT_EQ(space.LargestFree(), 2 * GROUP_UNITS - 5 + 333 - 10);
    const Extent large = space.Allocate(3 * GROUP_UNITS, 2 * GROUP_UNITS + 5, false, 0);
    EXPECT_EQ(large.units, 2 * GROUP_UNITS - 5 + 333 - 10) << "continues over the end of a group";
    EXPECT_EQ(space.MixedGroups(), 2u) << "the others are all free, or in use";
    EXPECT_TRUE(space.Free(2 * GROUP_UNITS, GROUP_UNITS)) << "whoever had it";
    EXPECT_EQ(space.FreeParts(0, total).back().units, GROUP_UNITS);
}

TEST(FreeSpaceTest, TakesZonesOnlyWhereItMay) {
    Found found(0);
    FreeSpace space = found.Space();
    std::vector<uint64_t> asked;
    const uint64_t zone = space.AllocateAligned(256, [&](uint64_t start) {
        asked.push_back(start);
        return start < 3 * GROUP_UNITS;
    });
    EXPECT_EQ(zone, 3 * GROUP_UNITS - 256);
    EXPECT_EQ(asked.front(), 4 * GROUP_UNITS + 0u) << "the highest that lies inside";
    EXPECT_EQ(space.AllocateAligned(256, [](uint64_t) { return false; }), 0u);
    EXPECT_EQ(space.FreeUnits(), WIDE_AREA.end - WIDE_AREA.start - 256);
}

// What it gains is free, and what there was is as before, wherever the area ended.
TEST(FreeSpaceTest, GrowsByWhatIsFree) {
    constexpr uint64_t GROUP = GROUP_UNITS;
    for (const uint64_t before : {GROUP - 1, GROUP, GROUP + 1, 2 * GROUP + 77}) {
        for (const uint64_t gained : {uint64_t(0), uint64_t(1), GROUP, 9 * GROUP + 5}) {
            for (const uint64_t used : {uint64_t(0), uint64_t(7), before - 100}) {
                FreeSpace space(SpaceMap::Area{100, before});
                if (used > 0) {
                    ASSERT_TRUE(space.Claim(before - used, used));
                }
                space.Grow(before + gained);
                EXPECT_EQ(space.TotalUnits(), before + gained - 100);
                EXPECT_EQ(space.FreeUnits(), before + gained - 100 - used);
                const std::vector<Extent> parts = space.FreeParts(0, UINT32_MAX);
                uint64_t free_units = 0;
                for (const Extent &part : parts) {
                    free_units += part.units;
                    EXPECT_TRUE(part.start + part.units <= before - used || part.start >= before ||
                                used == 0);
                }
                EXPECT_EQ(free_units, space.FreeUnits());
                if (used > 0) {
                    EXPECT_FALSE(space.Claim(before - 1, 1));
                    EXPECT_TRUE(space.Free(before - used, used));
                }
                EXPECT_EQ(space.LargestFree(), space.TotalUnits());
            }
        }
    }
}

} // namespace rawduck
