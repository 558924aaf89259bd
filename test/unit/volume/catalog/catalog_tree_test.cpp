//! The catalog in trees against the one in memory, which the same records are applied to.

#include "support/catalog_changes.hpp"
#include "support/out_of_memory.hpp"
#include "support/tree_store.hpp"
#include "volume/catalog/catalog_tree.hpp"

namespace rawduck {

namespace {

constexpr SpaceMap::Area AREA{300, 3 * GROUP_UNITS + 77};

//! A catalog on a medium, with the free space that a mount would find.
class CatalogStore {
  public:
    explicit CatalogStore(const std::shared_ptr<SimulatedMedium> &medium, uint32_t lba_size,
                          const TreeCheckpoint &checkpoint = TreeCheckpoint(),
                          const CatalogRoots &roots = CatalogRoots(), uint64_t cache_bytes = MIB)
        : store(medium, checkpoint, cache_bytes), catalog(store.pages, roots, lba_size, AREA),
          space(AREA, catalog.Space().Summaries(),
                [this](uint64_t group) { return catalog.Space().Map(group); }) {
        // References are to places on the device, where nothing is a page and part of a file.
        auto &zones = store.zones.free;
        zones.erase(zones.begin(), zones.lower_bound(AREA.end));
    }

    void Apply(const CatalogChanges::Record &record) {
        for (const Item &item : record.items) {
            std::string problem;
            ASSERT_TRUE(catalog.Apply(item, problem)) << problem;
        }
        Free(record);
    }
    void Free(const CatalogChanges::Record &record) {
        for (const Extent &extent : record.freed) {
            ASSERT_TRUE(space.Free(extent.start, extent.units));
        }
    }

    //! Everything is found as the model has it, and the other way round.
    void RequireSame(const CatalogChanges &changes) {
        const Catalog &model = changes.model;
        ASSERT_EQ(TextOf(catalog), TextOf(model));
        for (const auto &[id, entry] : model.Entries()) {
            EXPECT_EQ(catalog.IdOf(entry.name), id);
        }
        EXPECT_EQ(catalog.LastId(), model.Entries().empty() ? 0 : model.Entries().rbegin()->first);
        EXPECT_EQ(space.FreeUnits() + changes.UsedUnits(), AREA.end - AREA.start);
    }

    //! Nothing is wrong, and no page is in use but those that are referred to.
    void RequireSound() {
        std::set<uint64_t> used(store.map_units.begin(), store.map_units.end());
        const auto problems = catalog.FindProblems([&](const PagePointer &page) {
            EXPECT_TRUE(store.space.InUse(page.unit));
            EXPECT_TRUE(used.insert(page.unit).second) << "two pages share a place";
        });
        ASSERT_TRUE(problems.empty()) << problems.front();
        EXPECT_EQ(store.space.UsedPages(), used.size());
    }

    TreeStore store;
    CatalogTree catalog;
    FreeSpace space;
};

} // namespace

TEST(CatalogTreeTest, IsWhatTheCatalogInMemoryIs) {
    for (const uint32_t lba_size : {512u, 4096u}) {
        CatalogChanges changes(lba_size, AREA, lba_size);
        CatalogStore store(TreeMedium(), lba_size);
        for (int step = 0; step < 4000; step++) {
            store.Apply(changes.Next(store.space));
            if (step % 100 == 0) {
                store.RequireSame(changes);
            }
            if (step % 250 == 0) {
                store.store.Write();
                store.RequireSound();
            }
            ASSERT_FALSE(HasFailure()) << "step " << step;
        }
    }
}

TEST(CatalogTreeTest, IsThereAfterAReload) {
    const auto medium = TreeMedium();
    CatalogChanges changes(512, AREA, 5);
    TreeCheckpoint checkpoint;
    CatalogRoots roots;
    for (int round = 0; round < 20; round++) {
        CatalogStore store(medium, 512, checkpoint, roots, TREE_PAGE_BYTES * 4);
        store.RequireSame(changes);
        for (int step = 0; step < 150; step++) {
            store.Apply(changes.Next(store.space));
        }
        checkpoint = store.store.Write();
        roots = store.catalog.Roots();
        ASSERT_FALSE(HasFailure()) << "round " << round;
    }
}

// An item for which there is no memory is applied when it comes again, wherever it was interrupted.
TEST(CatalogTreeTest, AnInterruptedItemGoesOn) {
    CatalogChanges changes(512, AREA, 11);
    CatalogStore store(TreeMedium(), 512);
    int64_t interrupted = 0;
    for (int step = 0; step < 600; step++) {
        const CatalogChanges::Record record = changes.Next(store.space);
        for (const Item &item : record.items) {
            int64_t allocations = 0;
            for (bool done = false; !done;) {
                allocations += static_cast<int64_t>(changes.random() % 60);
                const OutOfMemoryAfter limit(allocations);
                std::string problem;
                try {
                    done = store.catalog.Apply(item, problem);
                    ASSERT_TRUE(done) << problem;
                } catch (const std::bad_alloc &) {
                    interrupted++;
                }
            }
        }
        store.Free(record);
        if (step % 100 == 99) {
            store.store.Write();
            store.RequireSame(changes);
            store.RequireSound();
        }
        ASSERT_FALSE(HasFailure()) << "step " << step;
    }
    EXPECT_GT(interrupted, 100);
}

TEST(CatalogTreeTest, ContradictionsAreRefused) {
    CatalogStore store(TreeMedium(), 512);
    const auto apply = [&](const Item &item) {
        std::string problem;
        const bool applied = store.catalog.Apply(item, problem);
        EXPECT_EQ(applied, problem.empty());
        return problem;
    };
    const auto create = [&](uint64_t id, const std::string &name) {
        Item item(ItemType::CREATE, id);
        item.kind = static_cast<uint8_t>(FileKind::DATABASE);
        item.name = name;
        return apply(item);
    };
    const auto with = [&](ItemType type, uint64_t id, std::vector<Extent> extents) {
        Item item(type, id);
        item.extents = std::move(extents);
        return apply(item);
    };
    EXPECT_EQ(create(1, "one"), "");
    EXPECT_EQ(create(2, "two"), "");
    EXPECT_NE(create(1, "three"), "") << "an id that is taken";
    EXPECT_NE(create(3, "two"), "") << "a name that is taken";
    EXPECT_EQ(with(ItemType::EXTENTS, 1, {{0, 1000, 4}}), "");
    EXPECT_NE(with(ItemType::EXTENTS, 1, {{5, 2000, 4}}), "") << "a gap";
    EXPECT_NE(with(ItemType::EXTENTS, 2, {{0, 1003, 1}}), "") << "space of another file";
    EXPECT_NE(with(ItemType::EXTENTS, 2, {{0, 2000, 2}, {2, 2001, 2}}), "") << "the same space twice";
    EXPECT_NE(with(ItemType::EXTENTS, 2, {{0, AREA.start - 1, 2}}), "") << "outside";
    EXPECT_NE(with(ItemType::EXTENTS, 2, {{0, AREA.end - 1, 2}}), "") << "outside";
    EXPECT_NE(with(ItemType::REMAP, 1, {{3, 3000, 2}}), "") << "more than there is";
    EXPECT_NE(with(ItemType::REMAP, 1, {{0, 1002, 1}}), "") << "space of the file itself";
    EXPECT_NE(with(ItemType::EXTENTS, 7, {{0, 3000, 1}}), "") << "no such file";
    Item size(ItemType::SIZE, 1);
    size.size = 4096;
    EXPECT_NE(apply(size), "") << "shrinks";
    size.size = 4 * 4096 - 1;
    EXPECT_NE(apply(size), "") << "no tail";
    size.size = 4 * 4096;
    EXPECT_EQ(apply(size), "");
    Item move(ItemType::MOVE, 1);
    move.name = "two";
    EXPECT_NE(apply(move), "") << "a file is there";
    move.replaced_id = 3;
    EXPECT_NE(apply(move), "") << "another file is there";
    move.replaced_id = 2;
    EXPECT_EQ(apply(move), "");
    store.RequireSound();
    EXPECT_EQ(store.catalog.IdOf("two"), 1u);
    EXPECT_FALSE(store.catalog.IdOf("one").has_value());
}

// What `check` compares is compared: each of these states is one that no item makes.
TEST(CatalogTreeTest, ProblemsAreFound) {
    const auto problem_of = [](const std::function<void(CatalogStore &, CatalogRoots &)> &damage) {
        CatalogStore sound(TreeMedium(), 512);
        CatalogChanges changes(512, AREA, 3);
        for (int step = 0; step < 60; step++) {
            sound.Apply(changes.Next(sound.space));
        }
        CatalogRoots roots = sound.catalog.Roots();
        damage(sound, roots);
        const CatalogTree damaged(sound.store.pages, roots, 512, AREA);
        const auto problems = damaged.FindProblems([](const PagePointer &) {});
        return problems.empty() ? "" : problems.front();
    };
    const auto change = [](CatalogStore &store, TreeRoot &root, const std::function<void(Tree &)> &work) {
        Tree tree(store.store.pages, root);
        work(tree);
        root = tree.Root();
    };
    EXPECT_EQ(problem_of([](CatalogStore &, CatalogRoots &) {}), "");
    EXPECT_NE(problem_of([&](CatalogStore &store, CatalogRoots &roots) {
                  change(store, roots.names, [](Tree &tree) { tree.Put("another", "12345678"); });
              }).find("names belong to"),
              std::string::npos);
    EXPECT_NE(problem_of([&](CatalogStore &store, CatalogRoots &roots) {
                  std::string name;
                  store.catalog.ScanNames("", [&](std::string_view first, uint64_t) {
                      name = first;
                      return false;
                  });
                  change(store, roots.names, [&](Tree &tree) { tree.Erase(name); });
              }).find("cannot be found under its name"),
              std::string::npos);
    EXPECT_NE(problem_of([&](CatalogStore &store, CatalogRoots &roots) {
                  change(store, roots.tails, [](Tree &tree) { tree.Clear(); });
              }).find("missing"),
              std::string::npos);
    EXPECT_NE(problem_of([&](CatalogStore &store, CatalogRoots &roots) {
                  change(store, roots.space_summaries, [](Tree &tree) { tree.Clear(); });
              }).find("summary"),
              std::string::npos);
    EXPECT_NE(problem_of([&](CatalogStore &store, CatalogRoots &roots) {
                  SpaceTree space(store.store.pages, roots.space_maps, roots.space_summaries, AREA);
                  space.Set(store.space.Allocate(1, 0, false, 0), true);
                  roots.space_maps = space.MapsRoot();
                  roots.space_summaries = space.SummariesRoot();
              }).find("not what files have there"),
              std::string::npos);
    EXPECT_NE(problem_of([&](CatalogStore &store, CatalogRoots &roots) {
                  change(store, roots.files, [](Tree &tree) { tree.Put("88888888", "nonsense"); });
              }).find("makes no sense"),
              std::string::npos);
}

// Of extents, and of pages, whatever the tree of references says.
TEST(CatalogTreeTest, ReferencesAreCountedAnew) {
    const auto problem_of = [](const std::function<void(ReferenceTree &, const FileEntry &)> &damage) {
        CatalogStore store(TreeMedium(), 512);
        const auto apply = [&](const Item &item) {
            std::string problem;
            EXPECT_TRUE(store.catalog.Apply(item, problem)) << problem;
        };
        const auto create = [&](uint64_t id, uint64_t extents) {
            Item item(ItemType::CREATE, id);
            item.kind = static_cast<uint8_t>(FileKind::DATABASE);
            item.name = std::to_string(id);
            apply(item);
            item = Item(ItemType::EXTENTS, id);
            for (uint64_t i = 0; i < extents; i++) {
                item.extents.push_back({i, 1000 * id + 2 * i, 1});
            }
            apply(item);
            item = Item(ItemType::SIZE, id);
            item.size = extents * ALLOCATION_UNIT_BYTES;
            apply(item);
        };
        create(1, 3);   // inline
        create(2, 100); // in a tree
        for (uint64_t id = 3; id <= 6; id++) {
            Item item(ItemType::CLONE, id);
            item.kind = static_cast<uint8_t>(CloneKind::SNAPSHOT);
            item.name = std::to_string(id);
            item.source_id = id % 2 == 0 ? 2 : 1;
            apply(item);
        }
        CatalogRoots roots = store.catalog.Roots();
        ReferenceTree references(store.store.pages, roots.references);
        damage(references, *store.catalog.Find(2));
        roots.references = references.Root();
        const CatalogTree damaged(store.store.pages, roots, 512, AREA);
        const auto problems = damaged.FindProblems([](const PagePointer &) {});
        return problems.empty() ? "" : problems.front();
    };
    const auto page = [](const FileEntry &entry) { return entry.extents_root.page.unit; };
    EXPECT_EQ(problem_of([](ReferenceTree &, const FileEntry &) {}), "");
    EXPECT_NE(problem_of([](ReferenceTree &tree, const FileEntry &) {
                  tree.Set({1002, 1, 1});
              }).find("shares space with another"),
              std::string::npos);
    EXPECT_NE(problem_of([](ReferenceTree &tree, const FileEntry &) {
                  tree.Set({1002, 1, 2});
              }).find("shares space with another"),
              std::string::npos);
    EXPECT_NE(problem_of([](ReferenceTree &tree, const FileEntry &) {
                  tree.Set({1002, 1, 4});
              }).find("says that 4 refer to allocation unit 1002, and 3 do"),
              std::string::npos);
    EXPECT_NE(problem_of([](ReferenceTree &tree, const FileEntry &) {
                  tree.Set({2000, 1, 2}); // its leaf is shared, and so counts once
              }).find("says that 2 refer to allocation unit 2000, and 1 do"),
              std::string::npos);
    EXPECT_NE(problem_of([&](ReferenceTree &tree, const FileEntry &entry) {
                  tree.Set({page(entry), TREE_PAGE_UNITS, 1});
              }).find(", and 3 do"),
              std::string::npos);
    EXPECT_NE(problem_of([&](ReferenceTree &tree, const FileEntry &entry) {
                  tree.Set({page(entry), TREE_PAGE_UNITS, 2});
              }).find("says that 2 refer"),
              std::string::npos);
}

// Room for metadata is counted so: what takes a page has to be told by how long the list is.
TEST(CatalogTreeTest, AListThatHasBecomeShortTakesNoPage) {
    for (const bool cut : {false, true}) {
        for (const bool shared : {false, true}) {
            CatalogStore store(TreeMedium(), 512);
            const auto apply = [&](const Item &item) {
                std::string problem;
                EXPECT_TRUE(store.catalog.Apply(item, problem)) << problem;
            };
            Item item(ItemType::CREATE, 1);
            item.kind = static_cast<uint8_t>(FileKind::DATABASE);
            item.name = "one";
            apply(item);
            item = Item(ItemType::EXTENTS, 1);
            for (uint64_t i = 0; i < 20; i++) {
                item.extents.push_back({i, 1000 + 2 * i, 1});
            }
            apply(item);
            item = Item(ItemType::SIZE, 1);
            item.size = 20 * ALLOCATION_UNIT_BYTES;
            apply(item);
            ASSERT_EQ(store.catalog.Find(1)->extents_root.levels, 1u);
            if (shared) {
                Item clone(ItemType::CLONE, 2);
                clone.kind = static_cast<uint8_t>(CloneKind::SNAPSHOT);
                clone.name = "two";
                clone.source_id = 1;
                apply(clone);
            }
            item = Item(cut ? ItemType::TRUNCATE : ItemType::REMAP, 1);
            item.size = 8 * ALLOCATION_UNIT_BYTES;
            item.extents = {{5, 2000, 15}};
            apply(item);
            EXPECT_EQ(store.catalog.Find(1)->extents_root.levels, 0u);
            const auto extents = store.catalog.Extents(*store.catalog.Find(1), 0, UINT64_MAX);
            ASSERT_EQ(extents.size(), cut ? 8u : 6u);
            EXPECT_EQ(extents[4].start, 1008u);
            EXPECT_EQ(extents[5].start, cut ? 1010u : 2000u);
            if (shared) {
                EXPECT_EQ(store.catalog.Extents(*store.catalog.Find(2), 0, UINT64_MAX).size(), 20u);
            }
            store.store.Write();
            store.RequireSound();
            apply(Item(ItemType::REMOVE, 1));
            store.store.Write();
            store.RequireSound();
        }
    }
}

// Its contents stay; it can be cloned, moved and removed.
TEST(CatalogTreeTest, ASnapshotIsNotChanged) {
    CatalogStore store(TreeMedium(), 512);
    const auto apply = [&](const Item &item) {
        std::string problem;
        const bool applied = store.catalog.Apply(item, problem);
        EXPECT_EQ(applied, problem.empty());
        return problem;
    };
    Item item(ItemType::CREATE, 1);
    item.kind = static_cast<uint8_t>(FileKind::DATABASE);
    item.name = "one";
    EXPECT_EQ(apply(item), "");
    Item clone(ItemType::CLONE, 2);
    clone.name = "two";
    clone.source_id = 1;
    clone.kind = 2;
    EXPECT_NE(apply(clone), "") << "no such kind";
    clone.kind = static_cast<uint8_t>(CloneKind::SNAPSHOT);
    EXPECT_EQ(apply(clone), "");
    EXPECT_NE(apply(clone), "") << "an id that is taken";
    clone.file_id = 3;
    EXPECT_NE(apply(clone), "") << "a name that is taken";
    clone.name = "three";
    clone.source_id = 7;
    EXPECT_NE(apply(clone), "") << "of nothing";
    for (const ItemType type :
         {ItemType::EXTENTS, ItemType::REMAP, ItemType::SIZE, ItemType::TRUNCATE, ItemType::HOLES}) {
        EXPECT_NE(apply(Item(type, 2)), "");
    }
    Item move(ItemType::MOVE, 2);
    move.name = "moved";
    EXPECT_EQ(apply(move), "");
    EXPECT_EQ(apply(Item(ItemType::REMOVE, 2)), "");
    store.RequireSound();
}

} // namespace rawduck
