//! Metadata trees against a model: what was put is found, in order, after any changes, checkpoints, reloads and
//! power cuts; pages are given back; damage is noticed.

#include "support/tree_store.hpp"

#include <atomic>
#include <thread>

namespace rawduck {

namespace {

//! Changes a tree and its model alike.
class Changes {
  public:
    explicit Changes(uint64_t seed) : random(seed) {}
    std::string Key() {
        std::string key = "k" + std::to_string(random() % keys);
        key.resize(key.size() + (random() % 8 == 0 ? random() % 300 : 0), 'x');
        return key;
    }
    void Step(Tree &tree, std::map<std::string, std::string> &model) {
        const std::string key = Key();
        if (random() % 100 < erased) {
            EXPECT_EQ(tree.Erase(key), model.erase(key) == 1);
            return;
        }
        const uint64_t kind = random() % 10;
        const std::string value = RandomBytes(random, random() % (kind == 0  ? TREE_ENTRY_BYTES_MAX - 400
                                                                  : kind < 4 ? 400
                                                                             : 24));
        tree.Put(key, value);
        model[key] = value;
    }
    std::mt19937_64 random;
    uint64_t keys = 5000, erased = 40;
};

} // namespace

TEST(TreeTest, HoldsWhatAModelHolds) {
    for (uint64_t seed = 0; seed < 6; seed++) {
        TreeStore store(TreeMedium());
        Changes changes(seed);
        std::map<std::string, std::string> model;
        for (int round = 0; round < 30; round++) {
            changes.erased = round % 10 < 6 ? 30 : 80; // grows, then shrinks
            for (int i = 0; i < 500; i++) {
                changes.Step(store.tree, model);
            }
            if (round % 3 == 0) {
                store.Write();
            }
            ASSERT_EQ(store.Contents(), model) << "seed " << seed << ", round " << round;
            const std::string key = changes.Key();
            const auto found = store.tree.Find(key);
            ASSERT_EQ(found.has_value(), model.count(key) == 1);
            auto before = model.upper_bound(key);
            const auto entry = store.tree.FindAtOrBefore(key);
            ASSERT_EQ(entry.has_value(), before != model.begin());
            if (entry) {
                --before;
                ASSERT_EQ(entry->key, before->first);
                ASSERT_EQ(entry->value, before->second);
            }
        }
        store.Write();
        store.RequireSound();
        while (!model.empty()) {
            ASSERT_TRUE(store.tree.Erase(model.begin()->first));
            model.erase(model.begin());
        }
        EXPECT_EQ(store.tree.Root().levels, 0u);
        store.Write();
        store.Write();
        store.RequireSound();
        EXPECT_EQ(store.space.Zones().size(), 1u) << "zones with nothing in them go back";
    }
}

TEST(TreeTest, KeysInOrderFillPages) {
    TreeStore store(TreeMedium());
    for (uint64_t i = 0; i < 100000; i++) {
        char key[9];
        snprintf(key, sizeof key, "%08u", static_cast<unsigned>(i));
        store.tree.Put(key, "sixteen bytes...");
    }
    store.Write();
    store.RequireSound();
    const uint64_t bytes = 100000 * TreePage::EntryBytes("12345678", "sixteen bytes...");
    EXPECT_LT(store.space.UsedPages(), bytes / TreePage::ROOM_BYTES * 102 / 100 + 4);
    store.tree.Clear();
    store.Write();
    store.Write();
    store.RequireSound();
}

TEST(TreeTest, IsThereAfterAReload) {
    const auto medium = TreeMedium();
    std::map<std::string, std::string> model;
    Changes changes(7);
    TreeCheckpoint checkpoint;
    for (int round = 0; round < 10; round++) {
        TreeStore store(medium, checkpoint, TREE_PAGE_BYTES * 4); // most reads go to the device
        ASSERT_EQ(store.Contents(), model);
        for (int i = 0; i < 1000; i++) {
            changes.Step(store.tree, model);
        }
        checkpoint = store.Write();
        store.RequireSound();
        EXPECT_LE(store.pages.CachedPages(), 4u);
    }
}

// Each checkpoint that was durable is whole after a power cut at any later event, until the next one is durable:
// nothing that it refers to was overwritten.
TEST(TreeTest, DurableCheckpointsSurvivePowerCuts) {
    for (uint64_t seed = 0; seed < 4; seed++) {
        const auto medium = TreeMedium();
        std::vector<TreeCheckpoint> durable;
        TreeStore store(medium);
        Changes changes(seed);
        changes.keys = 400;
        std::map<std::string, std::string> model;
        for (int round = 0; round < 12; round++) {
            for (int i = 0; i < 150; i++) {
                changes.Step(store.tree, model);
            }
            TreeCheckpoint checkpoint = store.Begin(model);
            for (int i = 0; i < 50; i++) { // while it is being written
                changes.Step(store.tree, model);
            }
            store.Finish(checkpoint);
            durable.push_back(checkpoint);
        }
        for (size_t i = 0; i < durable.size(); i++) {
            const uint64_t end = i + 1 < durable.size() ? durable[i + 1].events : medium->Events();
            for (uint64_t events = durable[i].events; events <= end; events++) {
                PowerCutReport report;
                TreeStore after(medium->PowerCut(events, events, report), durable[i]);
                after.RequireSound();
                ASSERT_EQ(after.Contents(), durable[i].contents) << "seed " << seed << ", event " << events;
            }
        }
    }
}

TEST(TreeTest, ChangesGoOnWhileACheckpointIsWritten) {
    const auto medium = TreeMedium();
    TreeStore store(medium);
    Changes changes(3);
    std::map<std::string, std::string> model;
    for (int i = 0; i < 3000; i++) {
        changes.Step(store.tree, model);
    }
    std::vector<TreeCheckpoint> checkpoints;
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        while (!stop) {
            std::unique_lock<std::shared_mutex> guard(store.pages.Mutex());
            changes.Step(store.tree, model);
        }
    });
    std::thread reader([&] {
        while (!stop) {
            std::shared_lock<std::shared_mutex> guard(store.pages.Mutex());
            EXPECT_EQ(store.tree.Find("k1").has_value(), model.count("k1") == 1);
        }
    });
    for (int i = 0; i < 20; i++) {
        TreeCheckpoint checkpoint = store.Begin(model);
        store.Finish(checkpoint);
        checkpoints.push_back(checkpoint);
    }
    stop = true;
    writer.join();
    reader.join();
    TreeStore after(medium, checkpoints.back());
    EXPECT_EQ(after.Contents(), checkpoints.back().contents);
}

TEST(TreeTest, DamageIsNoticed) {
    const auto medium = TreeMedium();
    TreeCheckpoint old, checkpoint;
    {
        TreeStore store(medium);
        for (int i = 0; i < 2000; i++) {
            store.tree.Put("key " + std::to_string(i), std::string(40, 'v'));
        }
        old = store.Write();
        checkpoint = store.Write();
    }
    {
        TreeStore store(medium, checkpoint);
        PagePointer stale = store.tree.Root().page;
        stale.generation++;
        std::string text;
        const auto read = [&] {
            store.pages.Read(stale, static_cast<uint16_t>(store.tree.Root().levels - 1));
        };
        EXPECT_EQ(FailureOf(read, &text), ErrorCode::CORRUPT);
        EXPECT_NE(text.find("lost a write"), std::string::npos) << text;
    }
    medium->Inject(SimulatedFault::CORRUPTION,
                   checkpoint.root.page.unit * (ALLOCATION_UNIT_BYTES / TREE_TEST_LBA));
    TreeStore store(medium, checkpoint);
    std::string text;
    EXPECT_EQ(FailureOf([&] { store.tree.Find("key 1"); }, &text), ErrorCode::CORRUPT);
    EXPECT_NE(text.find("allocation unit " + std::to_string(checkpoint.root.page.unit)), std::string::npos);
    EXPECT_EQ(store.tree.FindProblems([](const PagePointer &) {}).size(), 1u);
}

// A page of the generation that is under way is taken to be in memory, and is changed there in place.
TEST(TreeTest, APageThatNoCheckpointHasWritten) {
    const auto medium = TreeMedium();
    TreeCheckpoint checkpoint;
    {
        TreeStore store(medium);
        store.tree.Put("key", "value");
        checkpoint = store.Write();
    }
    const auto expect_damage = [&](const std::string &expected) {
        TreeStore store(medium, checkpoint);
        const std::function<void()> actions[] = {
            [&] { store.tree.Find("key"); },
            [&] { store.tree.Put("key", "other"); },
            [&] { store.tree.Erase("key"); },
            [&] { store.tree.Clear(); },
        };
        for (const auto &act : actions) {
            std::string text;
            EXPECT_EQ(FailureOf(act, &text), ErrorCode::CORRUPT);
            EXPECT_NE(text.find(expected), std::string::npos) << text;
        }
        EXPECT_EQ(store.tree.FindProblems([](const PagePointer &) {}).size(), 1u);
    };
    PagePointer &root = checkpoint.root.page;
    for (const uint64_t later : {1, 5}) {
        root.generation = checkpoint.generation + later;
        alignas(ALLOCATION_UNIT_BYTES) char bytes[TREE_PAGE_BYTES];
        TreeStore store(medium);
        store.io.Read(root.unit * ALLOCATION_UNIT_BYTES, bytes, sizeof bytes);
        TreePage(bytes).Seal(TREE_UUID, root);
        store.io.Write(root.unit * ALLOCATION_UNIT_BYTES, bytes, sizeof bytes);
        expect_damage("a checkpoint that was never written");
    }
    root.generation = checkpoint.generation;
    for (const uint64_t unit : {TREE_TEST_END - 3, TREE_TEST_END, UINT64_MAX / ALLOCATION_UNIT_BYTES + 2}) {
        root.unit = unit;
        expect_damage("lie outside");
    }
}

// Of the root only one page is left, which nobody has read yet.
TEST(TreeTest, APageThatCannotBeReadIsNoneOfWhoeverErasesBesideIt) {
    const auto medium = TreeMedium();
    const auto key = [](int number) {
        std::string text = std::to_string(1000 + number);
        return text.append(3000, 'k');
    };
    constexpr int KEYS = 60;
    TreeCheckpoint checkpoint;
    PagePointer first;
    std::string second_half;
    {
        TreeStore store(medium);
        for (int i = 0; i < KEYS; i++) {
            store.tree.Put(key(i), "v");
        }
        ASSERT_EQ(store.tree.Root().levels, 3u);
        checkpoint = store.Write();
        const auto root = store.pages.Read(checkpoint.root.page, 2);
        first = root->Page().Child(0);
        second_half = root->Page().Key(1);
    }
    for (const bool damaged : {false, true}) {
        TreeStore store(medium, checkpoint);
        int left = 0;
        if (damaged) {
            medium->Inject(SimulatedFault::READ_ERROR, first.unit * (ALLOCATION_UNIT_BYTES / TREE_TEST_LBA));
        }
        for (int i = 0; i < KEYS; i++) {
            if (key(i) >= second_half) {
                ASSERT_TRUE(store.tree.Erase(key(i)));
            } else {
                left++;
            }
        }
        EXPECT_EQ(store.tree.FindProblems([](const PagePointer &) {}).empty(), !damaged);
        if (damaged) {
            EXPECT_EQ(FailureOf([&] { store.tree.Find(key(0)); }), ErrorCode::IO);
        } else {
            EXPECT_EQ(store.Contents().size(), static_cast<size_t>(left));
            EXPECT_EQ(store.tree.Root().levels, 2u);
        }
    }
}

TEST(TreeTest, AFullVolumeChangesNothing) {
    TreeStore store(TreeMedium());
    Changes changes(5);
    changes.erased = 0;
    std::map<std::string, std::string> model;
    store.zones.free.erase(std::next(store.zones.free.begin(), 4), store.zones.free.end());
    const auto fill = [&] {
        for (;;) {
            const std::string key = changes.Key();
            const std::string value = RandomBytes(changes.random, 3000);
            store.tree.Put(key, value);
            model[key] = value;
        }
    };
    EXPECT_EQ(FailureOf(fill), ErrorCode::NO_SPACE);
    EXPECT_EQ(store.Contents(), model);
    store.RequireSound();
    for (int i = 0; i < 20; i++) { // things can be removed, and that gives pages back
        EXPECT_TRUE(store.tree.Erase(model.begin()->first));
        model.erase(model.begin());
    }
    store.Write();
    store.Write();
    store.RequireSound();
    store.tree.Put("a", model["a"] = "there is room again");
    EXPECT_EQ(store.Contents(), model);
}

} // namespace rawduck
