//! What a mount of format 2 finds of a damaged volume: a metadata page concerns the files that it tells of, and behind a
//! damaged record it is known what was overwritten.

#include "support/journal_store.hpp"
#include "volume/damage/load_volume.hpp"
#include "volume/journal/read_journal.hpp"
#include "volume/mount/mounted_metadata.hpp"

#include <set>

namespace rawduck {

namespace {

using Strings = std::vector<std::string>;

LoadedVolume Load(const Medium &medium) {
    return LoadVolume(*OpenMedium(medium), MIB, CheckAfterLog::CHANGED_FILES);
}

void Overwrite(const Medium &medium, uint64_t offset) {
    const std::string bytes(JOURNAL_LBA, 'x');
    const auto io = OpenMedium(medium);
    io->Write(offset, bytes.data(), bytes.size());
    io->Flush();
}

std::string ReadLba(const Medium &medium, uint64_t offset) {
    std::string bytes(JOURNAL_LBA, '\0');
    OpenMedium(medium)->Read(offset, &bytes[0], bytes.size());
    return bytes;
}

void WriteLba(const Medium &medium, uint64_t offset, const std::string &bytes) {
    const auto io = OpenMedium(medium);
    io->Write(offset, bytes.data(), bytes.size());
    io->Flush();
}

//! Many files, with trees of several pages, in the checkpoint and in the log behind it.
class DamagedPagesTest : public ::testing::Test {
  protected:
    explicit DamagedPagesTest(bool clones = false) : clones(clones) {
        JournalStore store(medium);
        const TreeSuperblock &superblock = store.loaded.image.superblock;
        CatalogChanges changes(JOURNAL_LBA, DataArea(superblock), 7);
        changes.files_max = 300;
        changes.clones = clones;
        JournalState state{changes.model, {}};
        for (int i = 0; i < 2500; i++) {
            store.Append(changes, state);
            store.journal.WriteCheckpoint();
        }
        for (int i = 0; i < 5; i++) {
            store.Append(changes, state);
        }
        expected = changes.model.Entries();
    }

    //! With what each is for.
    std::map<uint64_t, std::string> Pages() {
        const auto io = OpenMedium(medium);
        const JournalImage image = ReadJournal(*io);
        MetadataTrees trees(*io, image.superblock, NumberInMount(9, 1), MIB);
        std::map<uint64_t, std::string> pages;
        trees.catalog.FindProblems([&](const PagePointer &page) { pages[page.unit] = "file"; });
        const CatalogRoots &roots = image.superblock.roots;
        for (const auto &[root, name] :
             std::map<const TreeRoot *, std::string>{{&roots.names, "names"},
                                                     {&roots.files, "files"},
                                                     {&roots.tails, "tails"},
                                                     {&roots.space_maps, "space"},
                                                     {&roots.space_summaries, "space"},
                                                     {&roots.references, "references"}}) {
            Tree(trees.store, *root).FindProblems([&, text = name](const PagePointer &page) {
                pages[page.unit] = text;
            });
        }
        return pages;
    }

    //! What is found is right, and what is missing is told. Returns how many files cannot be read.
    size_t ExpectTheRest(const LoadedVolume &volume, const std::string &page) {
        std::set<std::string> told;
        for (const auto &[id, lost] : volume.files.unreadable) {
            told.insert(lost.name);
            EXPECT_NE(lost.why.find(page), std::string::npos) << lost.why;
        }
        size_t missing = 0;
        for (const auto &[id, entry] : expected) {
            const auto found = volume.files.entries.find(id);
            if (found == volume.files.entries.end()) {
                missing++;
                EXPECT_EQ(told.count(entry.name), 1u) << entry.name << " is missing";
            } else {
                EXPECT_EQ(TextOf(id, found->second), TextOf(id, entry));
                EXPECT_EQ(told.count(entry.name), 0u);
            }
        }
        EXPECT_EQ(missing + volume.files.entries.size(), expected.size());
        EXPECT_EQ(missing, told.size());
        return missing;
    }

    void DamageEachPage();

    const bool clones;
    const Medium medium = JournalMedium();
    std::map<uint64_t, CatalogEntry> expected;
};

class DamagedSharedPagesTest : public DamagedPagesTest {
  protected:
    DamagedSharedPagesTest() : DamagedPagesTest(true) {}
};

void DamagedPagesTest::DamageEachPage() {
    const LoadedVolume sound = Load(medium);
    EXPECT_EQ(sound.metadata.image.damage, "");
    EXPECT_EQ(ExpectTheRest(sound, ""), 0u);
    std::map<std::string, size_t> pages, files;
    size_t number = 0;
    for (const auto &[unit, what] : Pages()) {
        const uint64_t offset = unit * ALLOCATION_UNIT_BYTES + number % 32 * JOURNAL_LBA;
        const std::string bytes = ReadLba(medium, offset);
        if (number++ % 2 == 0) {
            Overwrite(medium, offset);
        } else {
            medium->Inject(SimulatedFault::READ_ERROR, offset / JOURNAL_LBA);
        }
        SCOPED_TRACE("page " + std::to_string(unit) + " of " + what);
        const LoadedVolume volume = Load(medium);
        EXPECT_NE(volume.metadata.image.damage, "");
        EXPECT_EQ(volume.metadata.image.damage_place, "metadata");
        const std::string page = number % 2 == 1 ? "allocation unit " + std::to_string(unit) : "LBA ";
        const size_t lost = ExpectTheRest(volume, page);
        pages[what]++;
        files[what] += lost;
        if (what == "names" || what == "space" || what == "references") {
            EXPECT_EQ(lost, 0u) << "every file has its name in its entry, and its space in its list";
        } else if (what == "file" && !clones) {
            EXPECT_LE(lost, 1u) << "a list of one file";
        }
        WriteLba(medium, offset, bytes);
    }
    EXPECT_EQ(ExpectTheRest(Load(medium), ""), 0u);
    for (const char *what : {"names", "files", "tails", "space", "file"}) {
        EXPECT_GT(pages[what], 0u) << what;
    }
    EXPECT_GT(pages["files"], 2u) << "the tree has leaves";
    EXPECT_GT(files["files"], 0u);
    EXPECT_GT(files["tails"], 0u);
    EXPECT_GT(files["file"], 0u);
    EXPECT_LT(files["files"], pages["files"] * expected.size());
    EXPECT_EQ(pages["references"] > 0, clones);
}

TEST_F(DamagedPagesTest, ConcernTheFilesThatTheyTellOf) {
    DamageEachPage();
}

TEST_F(DamagedSharedPagesTest, ConcernTheFilesThatShareThem) {
    DamageEachPage();
}

//! Of a file that has a unit which no other file has.
uint64_t FileWithSpaceOfItsOwn(const std::map<uint64_t, CatalogEntry> &entries) {
    std::map<uint64_t, size_t> files; // that have a unit
    const auto of_each_unit = [](const CatalogEntry &entry, auto act) {
        for (const Extent &extent : entry.extents) {
            for (uint64_t unit = extent.start; unit < extent.start + extent.units; unit++) {
                act(unit);
            }
        }
    };
    for (const auto &[id, entry] : entries) {
        of_each_unit(entry, [&](uint64_t unit) { files[unit]++; });
    }
    for (const auto &[id, entry] : entries) {
        bool own = false;
        of_each_unit(entry, [&](uint64_t unit) { own = own || files[unit] == 1; });
        if (own) {
            return id;
        }
    }
    ADD_FAILURE() << "all space is shared";
    return 0;
}

//! Where one unit more or less is free than the files leave, nobody writes.
void ExpectFreeSpaceIsCompared(const Medium &medium) {
    const auto io = OpenMedium(medium);
    const auto load = [&] { return LoadVolume(*io, MIB, CheckAfterLog::CHANGED_FILES); };
    const MountedMetadata sound = MountLoaded(load());
    EXPECT_EQ(sound.damage, "");
    EXPECT_GT(sound.free.FreeUnits(), 0u);
    LoadedVolume less = load(), more = load();
    less.metadata.space->Allocate(1, 0, false, 0);
    EXPECT_NE(MountLoaded(std::move(less)).damage.find("units are free"), std::string::npos);
    more.files.entries.erase(FileWithSpaceOfItsOwn(more.files.entries));
    EXPECT_NE(MountLoaded(std::move(more)).damage.find("units are free"), std::string::npos);
}

TEST_F(DamagedPagesTest, FreeSpaceIsWhatFilesLeave) {
    ExpectFreeSpaceIsCompared(medium);
}

TEST_F(DamagedSharedPagesTest, FreeSpaceIsWhatFilesLeave) {
    ExpectFreeSpaceIsCompared(medium);
}

TEST_F(DamagedPagesTest, TheirMapConcernsNoFile) {
    const uint64_t map = MapUnits(Load(medium).metadata.image.superblock).front() * ALLOCATION_UNIT_BYTES;
    for (const bool unreadable : {false, true}) {
        if (unreadable) {
            medium->Inject(SimulatedFault::READ_ERROR, map / JOURNAL_LBA);
        } else {
            Overwrite(medium, map);
        }
        const LoadedVolume volume = Load(medium);
        EXPECT_NE(volume.metadata.image.damage.find("map of metadata pages"), std::string::npos)
            << volume.metadata.image.damage;
        EXPECT_EQ(ExpectTheRest(volume, ""), 0u);
    }
}

TEST_F(DamagedPagesTest, OfADeviceThatIsGoneAreNoDamage) {
    const auto io = OpenMedium(medium);
    medium->Inject(SimulatedFault::POWER_CUT, medium->Events());
    EXPECT_EQ(FailureOf([&] { LoadVolume(*io, MIB, CheckAfterLog::CHANGED_FILES); }), ErrorCode::IO);
}

//! Records one after the other, each its own commit, in a log that is long enough for all.
class DamagedRecordTest : public ::testing::Test {
  protected:
    static constexpr uint64_t LOG_BYTES = 512 * KIB;

    std::unique_ptr<JournalStore> Mount() { return std::make_unique<JournalStore>(medium); }
    static Item Create(uint64_t id, const std::string &name) {
        Item item(ItemType::CREATE, id);
        item.kind = static_cast<uint8_t>(FileKind::OTHER);
        item.name = name;
        return item;
    }
    static Item Extents(uint64_t id, ItemType type, const std::vector<Extent> &extents) {
        Item item(type, id);
        item.extents = extents;
        return item;
    }
    static Item Size(uint64_t id, ItemType type, uint64_t size, uint64_t tail = 0) {
        Item item(type, id);
        item.size = size;
        item.tail = std::string(tail, 't');
        return item;
    }
    void Append(JournalStore &store, std::vector<Item> items) {
        for (const Item &item : items) {
            for (const Extent &extent : item.extents) {
                store.loaded.space->Claim(extent.start, extent.units);
            }
        }
        JournalRecord record;
        record.items = std::move(items);
        store.journal.Append(record);
    }
    //! File 1 has 100 units at `start`.
    void MakeFile(JournalStore &store) {
        start = store.loaded.image.superblock.data_start + 5000; // far from the pages
        Append(store, {Create(1, "f"), Extents(1, ItemType::EXTENTS, {{0, start, 100}}),
                       Size(1, ItemType::SIZE, 100 * ALLOCATION_UNIT_BYTES)});
    }
    void ExpectTheFirstIsMissed(size_t before, size_t all);
    //! Where the next record will lie.
    uint64_t EndOfLog() {
        const JournalImage image = ReadJournal(*OpenMedium(medium));
        return LogStart(image.superblock, image.log.back().area) + image.log.back().bytes;
    }
    //! Whether the volume that is found says that this unit was overwritten.
    static bool IsGone(const LoadedVolume &volume, uint64_t unit) {
        return std::any_of(volume.overwritten.begin(), volume.overwritten.end(),
                           [unit](const Extent &extent) {
                               return unit >= extent.start && unit - extent.start < extent.units;
                           });
    }

    const Medium medium = JournalMedium(SimulatedFua::HONOURED, LOG_BYTES);
    uint64_t start = 0;
};

TEST_F(DamagedRecordTest, WhatWasOverwrittenBehindItIsKnown) {
    uint64_t damaged = 0;
    {
        const auto store = Mount();
        MakeFile(*store);
        damaged = EndOfLog();
        // What lay in the middle is free then, and given to another file.
        Append(*store, {Extents(1, ItemType::REMAP, {{40, start + 2000, 20}})});
        Append(*store, {Create(2, "g"), Extents(2, ItemType::EXTENTS, {{0, start + 45, 10}}),
                        Size(2, ItemType::SIZE, 10 * ALLOCATION_UNIT_BYTES)});
    }
    EXPECT_TRUE(Load(medium).overwritten.empty());
    for (const bool unreadable : {false, true}) {
        if (unreadable) {
            medium->Inject(SimulatedFault::READ_ERROR, damaged / JOURNAL_LBA);
        } else {
            Overwrite(medium, damaged);
        }
        const LoadedVolume volume = Load(medium);
        EXPECT_NE(volume.metadata.image.damage.find("whole records lie behind it"), std::string::npos)
            << volume.metadata.image.damage;
        EXPECT_EQ(volume.metadata.image.damage_place, "log");
        ASSERT_EQ(volume.files.entries.size(), 1u);
        for (const uint64_t unit : {0, 44, 45, 54, 55, 99}) {
            EXPECT_EQ(IsGone(volume, start + unit), unit >= 45 && unit < 55) << unit;
        }
    }
}

TEST_F(DamagedRecordTest, WhatWasCutBehindItIsKnown) {
    const std::vector<std::pair<std::vector<Item>, uint64_t>> cuts = {
        {{Size(1, ItemType::TRUNCATE, 30 * ALLOCATION_UNIT_BYTES + JOURNAL_LBA)}, 30},
        {{Item(ItemType::REMOVE, 1)}, 0},
        {{Create(2, "g"),
          [] {
              Item item(ItemType::MOVE, 2);
              item.name = "f";
              item.replaced_id = 1;
              return item;
          }()},
         0},
    };
    for (const auto &[items, kept] : cuts) {
        const Medium fresh = JournalMedium(SimulatedFua::HONOURED, LOG_BYTES);
        JournalStore store(fresh);
        MakeFile(store);
        Append(store, {Create(9, "damaged")});
        Append(store, items);
        Overwrite(fresh, LogStart(store.loaded.image.superblock, 1) + JOURNAL_LBA);
        const LoadedVolume volume = Load(fresh);
        EXPECT_NE(volume.metadata.image.damage, "");
        ASSERT_EQ(volume.files.entries.size(), 1u);
        EXPECT_EQ(volume.overwritten.size(), 1u);
        EXPECT_TRUE(IsGone(volume, start + 99));
        EXPECT_TRUE(IsGone(volume, start + kept));
        EXPECT_TRUE(kept == 0 || !IsGone(volume, start + kept - 1));
    }
}

// Also what the part of the log in the other area tells of.
TEST_F(DamagedRecordTest, InTheFirstPartOfTwo) {
    MakeFile(*Mount());
    uint64_t damaged = 0;
    {
        const auto store = Mount();
        Append(*store, {Create(2, "a")});
        damaged = EndOfLog() - JOURNAL_LBA;
        Append(*store, {Create(3, "b"), Item(ItemType::REMOVE, 1)});
    }
    {
        const auto store = Mount();
        Append(*store, {Create(4, "c"), Extents(4, ItemType::EXTENTS, {{0, start + 5, 3}}),
                        Size(4, ItemType::SIZE, 3 * ALLOCATION_UNIT_BYTES)});
    }
    ASSERT_EQ(ReadJournal(*OpenMedium(medium)).log.size(), 2u);
    Overwrite(medium, damaged);
    const LoadedVolume volume = Load(medium);
    EXPECT_NE(volume.metadata.image.damage, "");
    EXPECT_TRUE(IsGone(volume, start)) << "of the removed file";
    EXPECT_GE(volume.overwritten.size(), 2u);
}

//! A record of two LBAs and one behind it, of which the first is damaged: `before` files are left of `all`.
void DamagedRecordTest::ExpectTheFirstIsMissed(size_t before, size_t all) {
    uint64_t first = 0;
    {
        const auto store = Mount();
        Append(*store, {Create(8, std::string(900, 'n'))});
        first = EndOfLog() - 2 * JOURNAL_LBA;
        Append(*store, {Create(9, "b"), Extents(9, ItemType::EXTENTS, {{0, start + 500, 3}}),
                        Size(9, ItemType::SIZE, 3 * ALLOCATION_UNIT_BYTES)});
    }
    for (const uint64_t lba : {0, 1}) {
        const uint64_t offset = first + lba * JOURNAL_LBA;
        const std::string bytes = ReadLba(medium, offset);
        for (const bool unreadable : {false, true}) {
            unreadable ? medium->Inject(SimulatedFault::READ_ERROR, offset / JOURNAL_LBA)
                       : Overwrite(medium, offset);
            const LoadedVolume volume = Load(medium);
            EXPECT_NE(volume.metadata.image.damage.find("whole records lie behind it"), std::string::npos)
                << volume.metadata.image.damage;
            EXPECT_EQ(volume.files.entries.size(), before);
            EXPECT_TRUE(IsGone(volume, start + 501));
        }
        WriteLba(medium, offset, bytes);
        EXPECT_EQ(Load(medium).files.entries.size(), all);
    }
}

TEST_F(DamagedRecordTest, TheFirstOneOfTheLog) {
    MakeFile(*Mount());
    ExpectTheFirstIsMissed(1, 3);
}

TEST_F(DamagedRecordTest, TheFirstOneWhereTheLogGoesOn) {
    MakeFile(*Mount());
    Append(*Mount(), {Create(2, "a")});
    ExpectTheFirstIsMissed(2, 4);
    EXPECT_EQ(ReadJournal(*OpenMedium(medium)).log.size(), 2u);
}

// It may have been finished: nobody can tell.
TEST_F(DamagedRecordTest, TheOnlyOneWhereTheLogGoesOnIsUnreadable) {
    MakeFile(*Mount());
    Append(*Mount(), {Create(2, std::string(900, 'n'))});
    const uint64_t offset = EndOfLog() - JOURNAL_LBA; // its second LBA
    const std::string bytes = ReadLba(medium, offset);
    medium->Inject(SimulatedFault::READ_ERROR, offset / JOURNAL_LBA);
    const LoadedVolume volume = Load(medium);
    EXPECT_NE(volume.metadata.image.damage.find("nobody can tell"), std::string::npos)
        << volume.metadata.image.damage;
    EXPECT_EQ(volume.files.entries.size(), 1u);
    WriteLba(medium, offset, bytes);
    EXPECT_EQ(Load(medium).files.entries.size(), 2u);
}

TEST_F(DamagedRecordTest, ContradictsTheState) {
    const uint64_t end = [&] {
        const auto store = Mount();
        MakeFile(*store);
        return EndOfLog();
    }();
    const JournalImage image = ReadJournal(*OpenMedium(medium));
    std::string payload;
    AppendItem(payload, Item(ItemType::REMOVE, 7)); // which is not there
    AppendItem(payload, Extents(1, ItemType::REMAP, {{3, start + 3, 1}}));
    const LogPart part = image.log.back();
    const std::string record =
        SealRecord(image.superblock.uuid, part.epoch, part.records + 1, 1, payload, 2, JOURNAL_LBA);
    WriteLba(medium, end, record);
    const LoadedVolume volume = Load(medium);
    EXPECT_NE(volume.metadata.image.damage.find("file 7"), std::string::npos) << volume.metadata.image.damage;
    EXPECT_TRUE(IsGone(volume, start + 3));
}

TEST_F(DamagedRecordTest, DataThatTheLastOneVouchesForIsNamed) {
    const auto store = Mount();
    MakeFile(*store);
    const std::string page(ALLOCATION_UNIT_BYTES, 'p');
    const auto append = [&](uint64_t unit, std::vector<Item> items) {
        Item checksums(ItemType::DATA_CHECKSUM, 0);
        checksums.checksums.push_back(
            {unit * ALLOCATION_UNIT_BYTES, ALLOCATION_UNIT_BYTES, Crc32c(0, page.data(), page.size())});
        store->io->Write(unit * ALLOCATION_UNIT_BYTES, page.data(), page.size());
        items.push_back(checksums);
        JournalRecord record;
        record.items = std::move(items);
        record.cached = JournalRecord::Cached::CHECKSUMMED;
        store->journal.Append(record);
    };
    const auto expect = [&](uint64_t unit, const std::string &name) {
        const uint64_t lba = unit * ALLOCATION_UNIT_BYTES / JOURNAL_LBA + 3;
        medium->Inject(SimulatedFault::READ_ERROR, lba);
        const LoadedVolume volume = Load(medium);
        const std::string &damage = volume.metadata.image.damage;
        EXPECT_NE(damage.find(name), std::string::npos) << damage;
        EXPECT_NE(damage.find("LBA " + std::to_string(lba) + " to"), std::string::npos) << damage;
        EXPECT_TRUE(volume.overwritten.empty());
        WriteLba(medium, lba * JOURNAL_LBA, page.substr(0, JOURNAL_LBA));
        EXPECT_EQ(Load(medium).metadata.image.damage, "");
    };
    append(start + 7, {}); // of a file that was there before
    expect(start + 7, "file f");
    append(start + 300, {Create(2, "g"), Extents(2, ItemType::EXTENTS, {{0, start + 300, 1}}),
                         Size(2, ItemType::SIZE, ALLOCATION_UNIT_BYTES)});
    expect(start + 300, "file g");
}

// A copy that is damaged may have counted a mount whose records cannot be read now: its numbers are left out.
TEST(MountNumbersTest, OfADamagedSuperblockAreLeftOut) {
    const Medium medium = JournalMedium();
    JournalStore(medium).journal.Begin();
    const uint64_t mounts = Load(medium).metadata.image.superblock.mounts;
    EXPECT_EQ(NextMount(Load(medium).metadata.image), mounts + 1);
    for (const int copy : {0, 1}) {
        const uint64_t end = medium->Options().capacity_bytes;
        const uint64_t offset = copy == 0 ? 0 : end - ALLOCATION_UNIT_BYTES;
        const std::string bytes = ReadLba(medium, offset);
        Overwrite(medium, offset);
        const LoadedVolume volume = Load(medium);
        EXPECT_EQ(NextMount(volume.metadata.image), mounts + 2);
        EXPECT_EQ(volume.warning.find("superblock " + std::to_string(copy) + " is damaged"), 0u)
            << volume.warning;
        WriteLba(medium, offset, bytes);
    }
}

} // namespace

} // namespace rawduck
