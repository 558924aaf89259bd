//! What a mount of format 2 makes of damage, of superblocks that are old, and of other formats; and records that do
//! not fit into the log.

#include "support/journal_store.hpp"

namespace rawduck {

namespace {

//! One mount that appends records, each a new file, and ends without a checkpoint of its own accord.
class Mount {
  public:
    explicit Mount(const Medium &medium) : store(medium) { EXPECT_EQ(store.loaded.image.damage, ""); }

    void Create(const std::string &name, const std::vector<Extent> &extents = {}) {
        const uint64_t id = store.loaded.trees->catalog.LastId() + 1;
        JournalRecord record;
        record.items.emplace_back(ItemType::CREATE, id);
        record.items.back().kind = static_cast<uint8_t>(FileKind::OTHER);
        record.items.back().name = name;
        uint64_t units = 0;
        for (const Extent &extent : extents) {
            ASSERT_TRUE(store.loaded.space->Claim(extent.start, extent.units));
            units += extent.units;
        }
        if (units > 0) {
            record.items.emplace_back(ItemType::EXTENTS, id);
            record.items.back().extents = extents;
            record.items.emplace_back(ItemType::SIZE, id);
            record.items.back().size = units * ALLOCATION_UNIT_BYTES;
        }
        store.journal.Append(record);
    }

    JournalStore store;
};

std::vector<std::string> Names(const LoadedMetadata &loaded) {
    std::vector<std::string> names;
    loaded.trees->catalog.ScanNames("", [&](std::string_view name, uint64_t) {
        names.emplace_back(name);
        return true;
    });
    return names;
}

LoadedMetadata Load(const Medium &medium) {
    return LoadMetadata(*OpenMedium(medium), MIB, CheckPages::ALL);
}

using NameList = std::vector<std::string>;

//! The log lies in both areas: "a" and "b" in the first part, "c" in the second.
Medium LogInTwoParts() {
    const Medium medium = JournalMedium();
    Mount(medium).Create("z");
    {
        Mount mount(medium); // which has to write a checkpoint, because both areas are in use
        mount.Create("a");
        mount.Create("b");
    }
    Mount(medium).Create("c");
    const LoadedMetadata loaded = Load(medium);
    EXPECT_EQ(loaded.image.log.size(), 2u);
    EXPECT_EQ(loaded.image.log[0].records, 2u);
    EXPECT_EQ(Names(loaded), NameList({"a", "b", "c", "z"}));
    return medium;
}

//! LBA of the last record of a part of the log.
uint64_t LastLba(const Medium &medium, size_t part) {
    const JournalImage image = Load(medium).image;
    return (LogStart(image.superblock, image.log[part].area) + image.log[part].bytes) / JOURNAL_LBA - 1;
}

void Overwrite(const Medium &medium, uint64_t lba) {
    const std::string bytes(JOURNAL_LBA, 'x');
    const auto io = OpenMedium(medium);
    io->Write(lba * JOURNAL_LBA, bytes.data(), bytes.size());
    io->Flush();
}

void ExpectDamage(const Medium &medium, const std::string &text, const NameList &names) {
    const LoadedMetadata loaded = Load(medium);
    EXPECT_NE(loaded.image.damage.find(text), std::string::npos) << loaded.image.damage;
    EXPECT_EQ(Names(loaded), names);
}

} // namespace

TEST(JournalDamageTest, TheEndOfALogThatGoesOnElsewhere) {
    const Medium medium = LogInTwoParts();
    Overwrite(medium, LastLba(medium, 0));
    ExpectDamage(medium, "is damaged, and the log goes on behind it", {"a", "z"});
}

TEST(JournalDamageTest, TheEndOfTheLog) {
    const Medium medium = LogInTwoParts();
    Overwrite(medium, LastLba(medium, 1));
    ExpectDamage(medium, "", {"a", "b", "z"}); // as if it was torn
    const Medium unreadable = LogInTwoParts();
    const uint64_t lba = LastLba(unreadable, 1);
    unreadable->Inject(SimulatedFault::READ_ERROR, lba);
    ExpectDamage(unreadable, "nobody can tell", {"a", "b", "z"});
    const Medium behind = LogInTwoParts();
    behind->Inject(SimulatedFault::READ_ERROR, LastLba(behind, 1) + 1);
    ExpectDamage(behind, "nobody can tell", {"a", "b", "c", "z"});
}

TEST(JournalDamageTest, InsideTheLog) {
    const Medium medium = LogInTwoParts();
    Overwrite(medium, LastLba(medium, 0) - 1); // of the first of two
    ExpectDamage(medium, "whole records lie behind it", {"z"});
}

TEST(JournalDamageTest, OldSuperblocks) {
    const Medium medium = JournalMedium();
    Mount(medium).Create("a");
    const uint64_t end = medium->Options().capacity_bytes - ALLOCATION_UNIT_BYTES;
    std::string old(ALLOCATION_UNIT_BYTES, '\0');
    const auto io = OpenMedium(medium);
    io->Read(0, &old[0], old.size());
    for (int i = 0; i < 3; i++) {
        Mount(medium).Create(std::to_string(i));
    }
    for (const uint64_t place : {uint64_t(0), end}) {
        io->Write(place, old.data(), old.size());
    }
    const LoadedMetadata loaded = LoadMetadata(*io, MIB);
    EXPECT_NE(loaded.image.damage.find("the superblock is old"), std::string::npos) << loaded.image.damage;
}

TEST(JournalDamageTest, PagesAndTheirMap) {
    const Medium medium = LogInTwoParts();
    const TreeSuperblock superblock = Load(medium).image.superblock;
    ASSERT_GT(superblock.roots.files.levels, 0u);
    const uint64_t unit_lbas = ALLOCATION_UNIT_BYTES / JOURNAL_LBA;
    Overwrite(medium, superblock.roots.files.page.unit * unit_lbas + 3);
    const std::vector<std::string> problems = Load(medium).problems;
    ASSERT_FALSE(problems.empty());
    EXPECT_NE(problems.front().find("allocation unit " + std::to_string(superblock.roots.files.page.unit)),
              std::string::npos)
        << problems.front();
    std::string text;
    EXPECT_EQ(FailureOf([&] { LoadMetadata(*OpenMedium(medium), MIB); }, &text), ErrorCode::CORRUPT);
    const Medium other = LogInTwoParts();
    Overwrite(other, MapUnits(Load(other).image.superblock).front() * unit_lbas);
    EXPECT_EQ(FailureOf([&] { LoadMetadata(*OpenMedium(other), MIB); }, &text), ErrorCode::CORRUPT);
    EXPECT_NE(text.find("map of metadata pages is damaged"), std::string::npos) << text;
    EXPECT_EQ(Load(other).problems.size(), 1u);
}

// Pages lie in no space that records since the checkpoint have given to files, whatever the checkpoint says of it.
TEST(JournalDamageTest, ReplayTakesNoSpaceOfTheLog) {
    const Medium medium = JournalMedium();
    uint64_t start = 0;
    {
        Mount mount(medium);
        start = mount.store.loaded.image.superblock.data_start;
        mount.Create("a", {{0, start, 8 * ZONE_UNITS}});
    }
    for (int i = 0; i < 3; i++) {
        Mount mount(medium); // which writes the pages of what was replayed
        EXPECT_EQ(mount.store.loaded.image.superblock.generation > 0, i > 0);
        EXPECT_FALSE(mount.store.loaded.space->Claim(start, 1));
        mount.Create(std::to_string(i));
    }
}

TEST(JournalDamageTest, ARecordThatDoesNotFitIsACheckpoint) {
    const Medium medium = JournalMedium();
    Mount mount(medium);
    mount.Create("a");
    const uint64_t before = medium->Events();
    std::vector<Extent> extents;
    const uint64_t start = mount.store.loaded.image.superblock.data_start; // pages are taken from the end
    for (uint64_t i = 0; i < 1500; i++) {
        extents.push_back(Extent{i, start + 2 * i, 1});
    }
    ASSERT_GT(extents.size() * sizeof(Extent), LogBytes(mount.store.loaded.image.superblock));
    mount.Create("long", extents);
    mount.Create("z");
    for (uint64_t events = before; events <= medium->Events(); events++) {
        PowerCutReport report;
        const LoadedMetadata loaded = Load(medium->PowerCut(events, events, report));
        EXPECT_EQ(loaded.image.damage, "");
        EXPECT_TRUE(loaded.problems.empty()) << loaded.problems.front();
        const NameList names = Names(loaded);
        EXPECT_TRUE(names == NameList({"a"}) || names == NameList({"a", "long"}) ||
                    names == NameList({"a", "long", "z"}));
    }
    const LoadedMetadata loaded = Load(medium);
    const auto entry = loaded.trees->catalog.Find(*loaded.trees->catalog.IdOf("long"));
    EXPECT_EQ(loaded.trees->catalog.Extents(*entry, 0, UINT64_MAX).size(), extents.size());
}

TEST(JournalDamageTest, OtherFormatsAreRefused) {
    const Medium medium = JournalMedium();
    const auto io = OpenMedium(medium);
    std::string text;
    for (const uint32_t version : {1, 3}) {
        TreeSuperblock superblock =
            MakeTreeSuperblock(medium->Options().capacity_bytes, JOURNAL_LBA, MakeUuid(), "", 1);
        superblock.version = version;
        SealSuperblock(superblock);
        WriteSuperblocks(*io, EmptyVolume(superblock), [] {});
        EXPECT_EQ(FailureOf([&] { LoadMetadata(*io, MIB); }, &text), ErrorCode::UNSUPPORTED);
        EXPECT_NE(text.find(version == 1 ? "rawduck cp" : "newer rawduck"), std::string::npos) << text;
    }
    Volume::FormatDevice(*io, FormatOptions(), JOURNAL_LBA);
    EXPECT_EQ(LoadMetadata(*io, MIB).image.damage, "");
    const auto nothing = std::make_shared<SimulatedMedium>(medium->Options());
    EXPECT_EQ(FailureOf([&] { LoadMetadata(*OpenMedium(nothing), MIB); }, &text), ErrorCode::INVALID);
}

} // namespace rawduck
