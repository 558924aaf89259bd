//! Power cuts of a volume of format 2 at each event: what was acknowledged is there, what was not is wholly there or
//! not at all, and the metadata is whole.

#include "support/journal_store.hpp"

#include <thread>

namespace rawduck {

namespace {

//! Records one after the other, and after which event each was acknowledged.
class Life {
  public:
    //! Goes on from what is found on the medium, which is `state`.
    Life(const Medium &medium, const CatalogChanges &from, JournalState state)
        : store_(medium), changes_(from), state_(std::move(state)) {
        changes_.model = state_.catalog;
        changes_.kept_units = 3000;
        EXPECT_EQ(store_.DifferenceTo(state_), "");
        Acknowledge();
    }

    void Run(int records) {
        for (int i = 0; i < records; i++) {
            store_.Append(changes_, state_);
            Acknowledge();
            if (changes_.random() % 4 == 0) {
                store_.journal.WriteCheckpoint();
            }
        }
    }
    void RunBesideCheckpoints(int records) {
        std::atomic<bool> stop{false};
        std::thread writer([&] {
            while (!stop) {
                if (!store_.journal.WriteCheckpoint()) {
                    std::this_thread::yield();
                }
            }
        });
        for (int i = 0; i < records; i++) {
            store_.Append(changes_, state_);
            Acknowledge();
        }
        stop = true;
        writer.join();
    }

    //! The states that a cut after so many events may leave: the one that was acknowledged last, and the next.
    std::vector<const JournalState *> Allowed(uint64_t events) const {
        size_t last = 0;
        for (size_t i = 0; i < acknowledged_.size(); i++) {
            last = acknowledged_[i].first <= events ? i : last;
        }
        std::vector<const JournalState *> allowed{&acknowledged_[last].second};
        if (last + 1 < acknowledged_.size()) {
            allowed.push_back(&acknowledged_[last + 1].second);
        }
        return allowed;
    }
    uint64_t Begin() const { return acknowledged_.front().first; }
    uint64_t Events() const { return store_.medium->Events(); }
    uint64_t Checkpoints() const { return store_.journal.Checkpoints(); }
    const CatalogChanges &Changes() const { return changes_; }

  private:
    void Acknowledge() { acknowledged_.emplace_back(store_.medium->Events(), state_); }

    JournalStore store_;
    CatalogChanges changes_;
    JournalState state_;
    std::vector<std::pair<uint64_t, JournalState>> acknowledged_;
};

JournalState Nothing(const Medium &medium) {
    const TreeSuperblock superblock = LoadMetadata(*OpenMedium(medium), MIB).image.superblock;
    return {Catalog(JOURNAL_LBA, AllocationUnit{superblock.data_start}, AllocationUnit{superblock.data_end}), {}};
}

CatalogChanges NewChanges(const JournalState &, const Medium &medium, uint64_t seed) {
    return CatalogChanges(JOURNAL_LBA,
                          DataArea(LoadMetadata(*OpenMedium(medium), MIB).image.superblock), seed);
}

//! The state that is found, which has to be one of those allowed.
const JournalState *Found(const Medium &medium, const std::vector<const JournalState *> &allowed) {
    JournalStore store(medium);
    EXPECT_EQ(store.loaded.image.damage, "");
    std::string differences;
    for (const JournalState *state : allowed) {
        const std::string difference = store.DifferenceTo(*state);
        if (difference.empty()) {
            return state;
        }
        differences += difference + "\n";
    }
    ADD_FAILURE() << differences;
    return nullptr;
}

Medium Cut(const Life &life, const Medium &medium, uint64_t events, uint64_t seed) {
    PowerCutReport report;
    EXPECT_LE(events, life.Events());
    return medium->PowerCut(events, seed, report);
}

} // namespace

TEST(JournalCutTest, EveryEventOfALife) {
    for (const SimulatedFua fua : {SimulatedFua::HONOURED, SimulatedFua::NONE}) {
        const Medium medium = JournalMedium(fua);
        const JournalState nothing = Nothing(medium);
        Life life(medium, NewChanges(nothing, medium, 1), nothing);
        life.Run(250);
        EXPECT_GT(life.Checkpoints(), 5u);
        for (uint64_t events = life.Begin(); events <= life.Events(); events++) {
            ASSERT_NE(Found(Cut(life, medium, events, events), life.Allowed(events)), nullptr) << events;
            ASSERT_FALSE(testing::Test::HasFailure()) << "event " << events;
        }
    }
}

// The second life begins with what the first left, and is cut in turn: two mounts without a checkpoint between, torn
// tails, superblocks that differ.
TEST(JournalCutTest, EventsOfASecondLife) {
    std::mt19937_64 random(2);
    const Medium medium = JournalMedium();
    const JournalState nothing = Nothing(medium);
    Life first(medium, NewChanges(nothing, medium, 2), nothing);
    first.Run(120);
    for (int round = 0; round < 60; round++) {
        const uint64_t events = first.Begin() + random() % (first.Events() - first.Begin());
        const Medium second_medium = Cut(first, medium, events, random());
        const JournalState *state = Found(second_medium, first.Allowed(events));
        ASSERT_NE(state, nullptr);
        Life second(second_medium, first.Changes(), *state);
        second.Run(static_cast<int>(random() % 12));
        for (uint64_t cut = second.Begin(); cut <= second.Events(); cut++) {
            const Medium third = Cut(second, second_medium, cut, random());
            const JournalState *left = Found(third, second.Allowed(cut));
            ASSERT_NE(left, nullptr) << "round " << round << ", event " << cut;
            if (random() % 8 == 0) { // and a third goes on from there
                Life(third, first.Changes(), *left).Run(3);
            }
            ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round << ", event " << cut;
        }
    }
}

TEST(JournalCutTest, CheckpointsBesideRecords) {
    for (uint64_t seed = 0; seed < 3; seed++) {
        const Medium medium = JournalMedium();
        const JournalState nothing = Nothing(medium);
        Life life(medium, NewChanges(nothing, medium, seed), nothing);
        life.RunBesideCheckpoints(300);
        for (uint64_t events = life.Begin() + seed; events <= life.Events(); events += 7) {
            ASSERT_NE(Found(Cut(life, medium, events, events), life.Allowed(events)), nullptr) << events;
        }
    }
}

} // namespace rawduck
