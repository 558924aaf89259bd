//! Extents in a tree against those in memory, which the same changes are made to.

#include "support/out_of_memory.hpp"
#include "support/tree_store.hpp"
#include "volume/file/extent_map.hpp"
#include "volume/tree/extent_tree.hpp"

namespace rawduck {

namespace {

bool Same(const std::vector<Extent> &one, const std::vector<Extent> &two) {
    return std::equal(one.begin(), one.end(), two.begin(), two.end(), [](const Extent &a, const Extent &b) {
        return a.file_unit == b.file_unit && a.start == b.start && a.units == b.units;
    });
}

//! Changes a tree and a map alike. Places of the device are drawn so that some continue each other.
class ExtentChanges {
  public:
    ExtentChanges(PageStore &pages, uint64_t seed) : tree(pages, TreeRoot()), random(seed) {}

    void Step() {
        const uint64_t kind = random() % 20;
        if (map.Units() == 0 || kind < 8) {
            const Extent extent{map.Units(), Place(), 1 + random() % 40};
            map.Append(static_cast<AllocationUnit>(extent.start), extent.units);
            tree.Append(extent);
        } else if (kind < 19) {
            const uint64_t from = random() % map.Units();
            const Extent moved{from, Place(), 1 + random() % std::min<uint64_t>(map.Units() - from, 70)};
            map.Remap({moved});
            tree.Remap(moved);
            last_moved = moved;
        } else {
            const uint64_t units = map.Units() - random() % std::min<uint64_t>(map.Units() + 1, 100);
            map.Truncate(units);
            tree.Truncate(units);
            last_moved.units = 0;
        }
    }
    uint64_t Place() { return 1000 + random() % 200 * 20; }

    ExtentTree tree;
    ExtentMap map;
    std::mt19937_64 random;
    Extent last_moved;
};

} // namespace

TEST(ExtentTreeTest, IsWhatTheMapInMemoryIs) {
    for (uint64_t seed = 0; seed < 5; seed++) {
        TreeStore store(TreeMedium());
        ExtentChanges changes(store.pages, seed);
        for (int i = 0; i < 6000; i++) {
            changes.Step();
            if (changes.last_moved.units > 0 && i % 7 == 0) {
                changes.tree.Remap(changes.last_moved); // made again, it changes nothing
            }
            const uint64_t units = changes.map.Units();
            ASSERT_EQ(changes.tree.Units(), units);
            const uint64_t from = changes.random() % (units + 1), to = from + changes.random() % 300;
            ASSERT_TRUE(Same(changes.tree.Slice(from, to), changes.map.Slice(from, to))) << seed << " " << i;
        }
        ASSERT_TRUE(Same(changes.tree.Slice(0, UINT64_MAX), changes.map.Slice(0, UINT64_MAX)));
        const auto problems = changes.tree.FindProblems([](const PagePointer &) {});
        EXPECT_TRUE(problems.empty()) << problems.front();
        changes.tree.Truncate(0);
        EXPECT_EQ(changes.tree.Root().levels, 0u);
    }
}

TEST(ExtentTreeTest, AnInterruptedRemapGoesOn) {
    for (int64_t allocations = 0; allocations < 150; allocations++) {
        TreeStore store(TreeMedium());
        ExtentTree tree(store.pages, TreeRoot());
        for (uint64_t i = 0; i < 6; i++) {
            tree.Append(Extent{i, 1000 + 10 * i, 1});
        }
        const Extent moved{3, 5000, 3}; // up to the end of the file
        try {
            const OutOfMemoryAfter limit(allocations);
            tree.Remap(moved);
        } catch (const std::bad_alloc &) {
            tree.Remap(moved);
        }
        ASSERT_EQ(tree.Units(), 6u) << allocations;
        ASSERT_TRUE(Same(tree.Slice(3, 6), {moved})) << allocations;
        ASSERT_TRUE(tree.FindProblems([](const PagePointer &) {}).empty()) << allocations;
    }
}

TEST(ExtentTreeTest, ProblemsAreFound) {
    const auto problem_of = [](const std::vector<std::pair<std::string, std::string>> &entries) {
        TreeStore store(TreeMedium());
        for (const auto &[key, value] : entries) {
            store.tree.Put(key, value);
        }
        const auto problems =
            ExtentTree(store.pages, store.tree.Root()).FindProblems([](const PagePointer &) {});
        return problems.empty() ? "" : problems.front();
    };
    const auto key = [](char unit) { return std::string(7, '\0') + unit; };
    const auto value = [](char start, char units) {
        return start + std::string(7, '\0') + units + std::string(7, '\0');
    };
    EXPECT_EQ(problem_of({{key(0), value(9, 2)}, {key(2), value(5, 1)}}), "");
    EXPECT_NE(problem_of({{key(0), value(9, 2)}, {key(3), value(5, 1)}}).find("by nothing"),
              std::string::npos);
    EXPECT_NE(problem_of({{key(0), value(9, 2)}, {key(1), value(5, 1)}}).find("twice"), std::string::npos);
    EXPECT_NE(problem_of({{key(0), value(9, 2)}, {key(2), value(11, 1)}}).find("continues"),
              std::string::npos);
    EXPECT_NE(problem_of({{"other", "x"}}).find("something else"), std::string::npos);
}

} // namespace rawduck
