//! The tree of free space of a volume that grows, against a list of units.

#include "support/tree_store.hpp"
#include "volume/catalog/space_tree.hpp"

#include <algorithm>

namespace rawduck {

namespace {

constexpr uint64_t START = 300;

class SpaceTreeTest : public ::testing::Test {
  protected:
    void Set(uint64_t start, uint64_t units, bool used) {
        tree.Set(Extent{0, start, units}, used);
        std::fill_n(model.begin() + static_cast<long>(start), units, used);
    }
    void Grow(uint64_t end) {
        tree.Grow(end);
        model.resize(end, false);
    }
    void Compare() {
        const std::vector<std::string> problems = tree.FindProblems([](const PagePointer &) {});
        EXPECT_TRUE(problems.empty()) << problems.front();
        uint64_t free = 0;
        for (const GroupSummary &summary : tree.Summaries()) {
            free += summary.free_units;
        }
        EXPECT_EQ(free, static_cast<uint64_t>(std::count(model.begin() + START, model.end(), false)));
        for (uint64_t from = START; from < model.size();) {
            const auto begin = model.begin() + static_cast<long>(from);
            const uint64_t units = static_cast<uint64_t>(std::find(begin, model.end(), !*begin) - begin);
            const Extent extent{0, from, units};
            ASSERT_TRUE(*begin ? tree.AllUsed(extent) : tree.AllFree(extent)) << from << ", " << units;
            from += units;
        }
        EXPECT_FALSE(tree.Contains(Extent{0, model.size() - 1, 2}));
    }

    std::shared_ptr<SimulatedMedium> medium = TreeMedium();
    TreeStore store{medium};
    std::vector<bool> model = std::vector<bool>(5000, false);
    SpaceTree tree{store.pages, TreeRoot(), TreeRoot(), {START, 5000}};
};

TEST_F(SpaceTreeTest, GrowsWithinAGroupOfWhichAllWasInUse) {
    Set(START, 5000 - START, true);
    Grow(5001);
    Compare();
    Set(5000, 1, true);
    Grow(3 * GROUP_UNITS + 7);
    Compare();
}

TEST_F(SpaceTreeTest, GrowsWhenNothingIsStored) {
    Grow(GROUP_UNITS);
    Compare();
    Grow(GROUP_UNITS + 1);
    Compare();
}

TEST_F(SpaceTreeTest, GrowsAgainAndAgain) {
    std::mt19937_64 random(1);
    for (int step = 0; step < 200; step++) {
        const uint64_t start = START + random() % (model.size() - START);
        const bool to_the_end = random() % 4 == 0;
        const uint64_t most = model.size() - start;
        Set(start, to_the_end ? most : 1 + random() % std::min<uint64_t>(most, 6000), random() % 3 != 0);
        if (random() % 4 == 0) {
            const uint64_t more = random() % 3 == 0 ? 2 * GROUP_UNITS : random() % 400;
            Grow(random() % 3 == 0 ? AlignUp(model.size() + more, GROUP_UNITS) : model.size() + more);
        }
        Compare();
        ASSERT_FALSE(HasFailure()) << "step " << step;
    }
}

} // namespace

} // namespace rawduck
