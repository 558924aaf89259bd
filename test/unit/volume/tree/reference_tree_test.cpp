//! Counts of references in a tree against counts of single units.

#include "support/out_of_memory.hpp"
#include "support/tree_store.hpp"
#include "volume/tree/number_key.hpp"
#include "volume/tree/reference_tree.hpp"

namespace rawduck {

namespace {

constexpr uint64_t UNITS = 3000;

//! The same changes to a tree and to a count of each unit, which all are in use.
class References {
  public:
    References(PageStore &pages, uint64_t seed) : tree(pages, TreeRoot()), random(seed), counts(UNITS, 1) {}

    //! A few changes, as one item makes them. Returns what the tree is to be told.
    std::vector<ReferencedUnits> Change() {
        ReferenceChanges changes(tree);
        for (uint64_t i = 1 + random() % 5; i > 0; i--) {
            const uint64_t start = random() % UNITS,
                           units = 1 + random() % std::min<uint64_t>(UNITS - start, 90);
            std::vector<Extent> gone;
            if (random() % 2 == 0) {
                changes.Add(start, units);
                Each(start, units, [](uint64_t &count) { count++; });
                continue;
            }
            uint64_t last = 0;
            Each(start, units, [&](uint64_t &count) { last += count == 1 ? 1 : 0; });
            Each(start, units, [](uint64_t &count) { count = std::max<uint64_t>(count, 2) - 1; });
            changes.Remove(start, units, gone);
            for (const Extent &extent : gone) {
                last -= extent.units;
                EXPECT_TRUE(extent.start >= start && extent.start + extent.units <= start + units);
            }
            EXPECT_EQ(last, 0u) << "what nobody refers to any more is told";
        }
        return changes.Take();
    }
    void RequireSame() {
        for (uint64_t at = 0; at < UNITS;) {
            const ReferencedUnits found = tree.First(at, UNITS);
            ASSERT_GT(found.units, 0u);
            for (uint64_t unit = at; unit < at + found.units; unit++) {
                ASSERT_EQ(found.references, counts[unit]) << unit;
            }
            at += found.units;
        }
        const auto problems = tree.FindProblems([](const PagePointer &) {});
        ASSERT_TRUE(problems.empty()) << problems.front();
    }

    ReferenceTree tree;
    std::mt19937_64 random;

  private:
    template <class CHANGE> void Each(uint64_t start, uint64_t units, const CHANGE &change) {
        for (uint64_t unit = start; unit < start + units; unit++) {
            change(counts[unit]);
        }
    }
    std::vector<uint64_t> counts;
};

//! As it lies in a page, whatever it says.
void PutRange(Tree &tree, const ReferencedUnits &range) {
    const uint64_t value[] = {range.units, range.references};
    tree.Put(NumberKey(range.start), {reinterpret_cast<const char *>(value), sizeof value});
}

} // namespace

TEST(ReferenceTreeTest, CountsAsUnitsAreCounted) {
    for (uint64_t seed = 0; seed < 4; seed++) {
        TreeStore store(TreeMedium());
        References references(store.pages, seed);
        for (int i = 0; i < 1500; i++) {
            const std::vector<ReferencedUnits> changes = references.Change();
            for (int again = 0; again < 1 + i % 2; again++) { // made again, they change nothing
                for (const ReferencedUnits &change : changes) {
                    references.tree.Set(change);
                }
            }
            if (i % 50 == 0) {
                references.RequireSame();
            }
            ASSERT_FALSE(testing::Test::HasFailure()) << "step " << i;
        }
    }
}

TEST(ReferenceTreeTest, AnInterruptedChangeIsMadeAgain) {
    TreeStore store(TreeMedium());
    References references(store.pages, 9);
    int interrupted = 0;
    for (int i = 0; i < 500; i++) {
        for (const ReferencedUnits &change : references.Change()) {
            for (int64_t allocations = 0;; allocations += 3) {
                const OutOfMemoryAfter limit(allocations);
                try {
                    references.tree.Set(change);
                    break;
                } catch (const std::bad_alloc &) {
                    interrupted++;
                }
            }
        }
        references.RequireSame();
        ASSERT_FALSE(testing::Test::HasFailure()) << "step " << i;
    }
    EXPECT_GT(interrupted, 100);
}

TEST(ReferenceTreeTest, ProblemsAreFound) {
    const auto problem_of = [](std::vector<ReferencedUnits> ranges) {
        TreeStore store(TreeMedium());
        for (const ReferencedUnits &range : ranges) {
            PutRange(store.tree, range);
        }
        const ReferenceTree tree(store.pages, store.tree.Root());
        const auto problems = tree.FindProblems([](const PagePointer &) {});
        return problems.empty() ? "" : problems.front();
    };
    EXPECT_EQ(problem_of({{10, 5, 2}, {15, 5, 3}, {30, 1, 2}}), "");
    EXPECT_NE(problem_of({{10, 5, 2}, {14, 5, 3}}), "") << "they overlap";
    EXPECT_NE(problem_of({{10, 5, 1}}), "") << "one refers to it";
    EXPECT_NE(problem_of({{10, 0, 2}}), "") << "to nothing";
    EXPECT_NE(problem_of({{10, 5, 2}, {15, 5, 2}}), "") << "they continue each other";
    EXPECT_NE(problem_of({{10, UINT64_MAX, 2}}), "") << "more units than there are";
}

// Neither a wrong answer nor a search that does not come to its end: whoever asks goes from one range to the next.
TEST(ReferenceTreeTest, ARangeThatMakesNoSenseIsAnError) {
    for (const ReferencedUnits &range :
         {ReferencedUnits{10, 0, 2}, {10, UINT64_MAX, 2}, {10, UINT64_MAX - 9, 2}, {10, 5, 1}, {10, 5, 0}}) {
        TreeStore store(TreeMedium());
        PutRange(store.tree, range);
        ReferenceTree tree(store.pages, store.tree.Root());
        ReferenceChanges changes(tree);
        std::vector<Extent> gone;
        const std::function<void()> questions[] = {
            [&] { tree.IsShared({12, 1}); },
            [&] { tree.First(10, 11); },
            [&] { tree.Scan([](const ReferencedUnits &) {}); },
            [&] { tree.Set({8, 10, 3}); },
            [&] { changes.IsShared({12, 1}); },
            [&] { changes.Add(8, 10); },
            [&] { changes.Remove(8, 10, gone); },
        };
        for (const auto &ask : questions) {
            std::string text;
            EXPECT_EQ(FailureOf(ask, &text), ErrorCode::CORRUPT);
            EXPECT_NE(text.find("the references to allocation unit 10 make no sense"), std::string::npos)
                << text;
        }
    }
}

TEST(UnitCountsTest, AreThoseOfSingleUnits) {
    std::mt19937_64 random(4);
    UnitCounts counts;
    std::vector<uint64_t> units(500);
    for (int i = 0; i < 5000; i++) {
        const uint64_t start = random() % units.size();
        const uint64_t length = 1 + random() % (units.size() - start);
        const uint64_t count = random() % 3;
        const bool adds = random() % 2 == 0;
        adds ? counts.Add(start, length) : counts.Set(start, length, count);
        for (uint64_t unit = start; unit < start + length; unit++) {
            units[unit] = adds ? units[unit] + 1 : count;
        }
        uint64_t at = 0;
        counts.ForEach(0, units.size(), [&](const UnitCounts::Piece &piece) {
            ASSERT_EQ(piece.start, at);
            for (; at < piece.start + piece.units; at++) {
                ASSERT_EQ(units[at], piece.count) << at;
            }
        });
        ASSERT_EQ(at, units.size());
        ASSERT_EQ(counts.Any(start, length),
                  *std::max_element(units.begin() + static_cast<long>(start),
                                    units.begin() + static_cast<long>(start + length)) > 0);
        uint64_t last_end = units.size() + 1, last_count = 0;
        counts.ForAll([&](const UnitCounts::Piece &piece) {
            ASSERT_FALSE(piece.start == last_end && piece.count == last_count) << "ranges are joined";
            last_end = piece.start + piece.units;
            last_count = piece.count;
        });
    }
}

} // namespace rawduck
