//! Records and checkpoints of format 2 for which there is no memory: made again, they are whole.

#include "support/journal_store.hpp"
#include "support/out_of_memory.hpp"

namespace rawduck {

namespace {

//! Runs it with less memory than it needs, and then with ever more. Returns how often there was too little.
int UntilThereIsMemory(std::mt19937_64 &random, const std::function<void()> &work) {
    int64_t allocations = 0;
    for (int failures = 0;; failures++) {
        allocations += static_cast<int64_t>(random() % 40);
        const OutOfMemoryAfter limit(allocations);
        try {
            work();
            return failures;
        } catch (const std::bad_alloc &) {
        }
    }
}

} // namespace

TEST(JournalMemoryTest, WhatIsAppendedAgainIsThereOnce) {
    const Medium medium = JournalMedium();
    std::mt19937_64 random(4);
    int failures = 0;
    std::optional<JournalState> state;
    for (int mount = 0; mount < 6; mount++) {
        JournalStore store(medium);
        const SpaceMap::Area area = DataArea(store.loaded.image.superblock);
        if (!state) {
            state =
                JournalState{Catalog(JOURNAL_LBA, AllocationUnit{area.start}, AllocationUnit{area.end}), {}};
        }
        ASSERT_EQ(store.DifferenceTo(*state), "") << "mount " << mount;
        CatalogChanges changes(JOURNAL_LBA, area, random());
        changes.model = state->catalog;
        changes.kept_units = 3000;
        changes.next_id = store.loaded.trees->catalog.LastId() + 1;
        failures += UntilThereIsMemory(random, [&] { store.journal.Begin(); });
        for (int i = 0; i < 60; i++) {
            const JournalStore::Next next = store.Prepare(changes, *state);
            failures += UntilThereIsMemory(random, [&] { store.journal.Append(next.record); });
            store.Free(next);
            if (random() % 4 == 0) {
                failures += UntilThereIsMemory(random, [&] { store.journal.WriteCheckpoint(); });
            }
        }
        EXPECT_EQ(store.DifferenceTo(*state), "") << "mount " << mount;
        PowerCutReport report;
        JournalStore after(medium->PowerCut(medium->Events(), 1, report));
        ASSERT_EQ(after.loaded.image.damage, "");
        ASSERT_EQ(after.DifferenceTo(*state), "") << "after mount " << mount;
    }
    EXPECT_GT(failures, 300);
}

} // namespace rawduck
