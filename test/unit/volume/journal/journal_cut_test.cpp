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
    Life(const Medium &medium, uint64_t seed, JournalState state, uint64_t flushes = UINT64_MAX)
        : store_(medium, flushes), changes_(JOURNAL_LBA, DataArea(store_.loaded.image.superblock), seed),
          state_(std::move(state)) {
        changes_.model = state_.catalog;
        changes_.kept_units = 3000;
        changes_.next_id = store_.loaded.trees->catalog.LastId() + 1;
        EXPECT_EQ(store_.loaded.image.damage, "");
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

    //! The states that a cut after so many events may leave: the one that was acknowledged last, and the next, which
    //! may be under way.
    std::vector<JournalState> Allowed(uint64_t events) const {
        size_t last = 0;
        for (size_t i = 0; i < acknowledged_.size(); i++) {
            last = acknowledged_[i].first <= events ? i : last;
        }
        return {acknowledged_[last].second,
                last + 1 < acknowledged_.size() ? acknowledged_[last + 1].second : state_};
    }
    uint64_t Begin() const { return acknowledged_.front().first; }
    //! The event after which the first record was acknowledged.
    uint64_t FirstAcknowledged() const {
        return acknowledged_.size() > 1 ? acknowledged_[1].first : UINT64_MAX;
    }
    uint64_t Events() const { return store_.medium->Events(); }
    uint64_t Checkpoints() const { return store_.journal.Checkpoints(); }
    Medium Cut(uint64_t events, uint64_t seed) const {
        PowerCutReport report;
        return store_.medium->PowerCut(events, seed, report);
    }

  private:
    void Acknowledge() { acknowledged_.emplace_back(store_.medium->Events(), state_); }

    JournalStore store_;
    CatalogChanges changes_;
    JournalState state_; //!< with what is under way
    std::vector<std::pair<uint64_t, JournalState>> acknowledged_;
};

JournalState Nothing(const Medium &medium) {
    const SpaceMap::Area area = DataArea(JournalStore(medium).loaded.image.superblock);
    return {Catalog(JOURNAL_LBA, AllocationUnit{area.start}, AllocationUnit{area.end}), {}};
}

//! The state that is found, which has to be one of those allowed.
JournalState Found(const Medium &medium, const std::vector<JournalState> &allowed) {
    JournalStore store(medium);
    EXPECT_EQ(store.loaded.image.damage, "");
    std::string differences;
    for (const JournalState &state : allowed) {
        const std::string difference = store.DifferenceTo(state);
        if (difference.empty()) {
            return state;
        }
        differences += difference + "\n";
    }
    ADD_FAILURE() << differences;
    return allowed.front();
}

//! Damages one copy where both are there.
void MayDamageSuperblock(const Medium &medium, uint64_t choice) {
    const JournalImage image = JournalStore(medium).loaded.image;
    if (choice < 2 && image.copies[0].valid && image.copies[1].valid) {
        DamageSuperblock(medium, static_cast<int>(choice));
    }
}

} // namespace

TEST(JournalCutTest, EveryEventOfALife) {
    for (const SimulatedFua fua : {SimulatedFua::HONOURED, SimulatedFua::NONE}) {
        const Medium medium = JournalMedium(fua);
        Life life(medium, 1, Nothing(medium));
        life.Run(120);
        EXPECT_GT(life.Checkpoints(), 2u);
        for (uint64_t events = life.Begin(); events <= life.Events(); events++) {
            const Medium cut = life.Cut(events, events);
            MayDamageSuperblock(cut, events % 3);
            Found(cut, life.Allowed(events));
            ASSERT_FALSE(testing::Test::HasFailure()) << "event " << events;
        }
    }
}

// The second life begins with what the first left, and is cut in turn: two mounts without a checkpoint between, torn
// tails, superblocks that differ or are damaged.
TEST(JournalCutTest, EventsOfASecondLife) {
    std::mt19937_64 random(2);
    const Medium medium = JournalMedium(SimulatedFua::NONE);
    Life first(medium, 2, Nothing(medium));
    first.Run(80);
    for (int round = 0; round < 40; round++) {
        const uint64_t events = first.Begin() + random() % (first.Events() - first.Begin());
        const Medium second_medium = first.Cut(events, random());
        MayDamageSuperblock(second_medium, random() % 8);
        Life second(second_medium, random(), Found(second_medium, first.Allowed(events)));
        second.Run(static_cast<int>(random() % 8));
        for (uint64_t cut = second.Begin(); cut <= second.Events(); cut++) {
            const Medium third_medium = second.Cut(cut, random());
            const JournalState left = Found(third_medium, second.Allowed(cut));
            if (random() % 4 == 0) { // and a third, and a mount after it
                Life third(third_medium, random(), left);
                third.Run(static_cast<int>(random() % 4));
                Found(third.Cut(third.Events(), random()), third.Allowed(third.Events()));
            }
            ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round << ", event " << cut;
        }
    }
}

// A process that is killed leaves what it wrote in the cache of the device, where the next finds it; then the power
// goes.
TEST(JournalCutTest, KilledAndThenCut) {
    std::mt19937_64 random(3);
    for (int round = 0; round < 60; round++) {
        const Medium medium = JournalMedium(round % 2 ? SimulatedFua::HONOURED : SimulatedFua::NONE);
        std::vector<JournalState> allowed;
        {
            Life first(medium, random(), Nothing(medium), random() % 40);
            EXPECT_EQ(FailureOf([&] { first.Run(1000); }), ErrorCode::IO);
            allowed = first.Allowed(first.Events());
        }
        Life second(medium, random(), Found(medium, allowed));
        second.Run(static_cast<int>(random() % 3));
        for (uint64_t cut = second.Begin(); cut <= second.Events(); cut++) {
            std::vector<JournalState> left = second.Allowed(cut);
            if (cut < second.FirstAcknowledged()) { // what the first left may not have been durable
                left.insert(left.end(), allowed.begin(), allowed.end());
            }
            Found(second.Cut(cut, random()), left);
            ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round << ", event " << cut;
        }
    }
}

TEST(JournalCutTest, CheckpointsBesideRecords) {
    for (uint64_t seed = 0; seed < 3; seed++) {
        const Medium medium = JournalMedium();
        Life life(medium, seed, Nothing(medium));
        life.RunBesideCheckpoints(150);
        for (uint64_t events = life.Begin() + seed; events <= life.Events(); events += 7) {
            Found(life.Cut(events, events), life.Allowed(events));
            ASSERT_FALSE(testing::Test::HasFailure()) << "event " << events;
        }
    }
}

} // namespace rawduck
