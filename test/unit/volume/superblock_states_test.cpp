//! The table of docs/ON_DISK_FORMAT.md, row by row and in either order of the copies.

#include "support/damaged_volume.hpp"

#include <algorithm>

namespace rawduck {

namespace {

using Strings = std::vector<std::string>;

class SuperblockStatesTest : public DamagedVolumeTest {
  protected:
    enum class Damage { GARBAGE, ZEROS, UNREADABLE };
    static constexpr Damage DAMAGES[] = {Damage::GARBAGE, Damage::ZEROS, Damage::UNREADABLE};

    void DamageCopy(int copy, Damage damage) {
        const uint64_t offset = CopyOffset(copy);
        if (damage == Damage::UNREADABLE) {
            MakeUnreadable(offset + 2 * LBA);
        } else {
            WriteBytes(offset, std::string(ALLOCATION_UNIT_BYTES, damage == Damage::ZEROS ? '\0' : 'x'));
        }
    }

    //! The superblock before a mount that makes so many commits.
    TreeSuperblock CommitInANewMount(int commits) {
        const TreeSuperblock before = Load().superblock;
        Commit("later", commits);
        return before;
    }
};

constexpr SuperblockStatesTest::Damage SuperblockStatesTest::DAMAGES[];

TEST_F(SuperblockStatesTest, BothTheSame) {
    Commit("first", 3);
    EXPECT_EQ(memcmp(ReadBytes(CopyOffset(0), ALLOCATION_UNIT_BYTES).data(),
                     ReadBytes(CopyOffset(1), ALLOCATION_UNIT_BYTES).data(), ALLOCATION_UNIT_BYTES),
              0);
    const uint64_t events = medium->Events(), mounts = ReadCopy(0).mounts;
    EXPECT_TRUE(Complaints().empty());
    EXPECT_TRUE(RepairVolume(target.name).empty());
    EXPECT_EQ(medium->Events(), events);
    Commit("again", 1);
    EXPECT_EQ(ReadCopy(0).mounts, mounts + 1);
    EXPECT_EQ(Content(), "firstfirstfirstagain");
}

TEST_F(SuperblockStatesTest, OneNewer) {
    for (const int older : {0, 1}) {
        for (const bool repair : {true, false}) {
            const std::string before = older == 0 && repair ? "" : Content();
            WriteCopy(older, CommitInANewMount(3));
            const std::string expected = before + "laterlaterlater";
            EXPECT_EQ(Content(), expected) << "the newer one counts";
            EXPECT_TRUE(Complaints().empty());
            EXPECT_EQ(Planned().size(), 1u);
            if (repair) {
                EXPECT_EQ(RepairVolume(target.name).size(), 1u);
                EXPECT_TRUE(Planned().empty());
            }
            Commit("again", 2);
            EXPECT_EQ(Content(), expected + "againagain");
            EXPECT_EQ(ReadCopy(0).sequence, ReadCopy(1).sequence);
        }
    }
}

TEST_F(SuperblockStatesTest, OneDamaged) {
    Commit("first", 1);
    for (const int damaged : {0, 1}) {
        for (const Damage damage : DAMAGES) {
            Commit("more", 3);
            const std::string expected = Content();
            const uint64_t mounts = ReadCopy(0).mounts;
            DamageCopy(damaged, damage);
            EXPECT_EQ(Content(), expected);
            EXPECT_EQ(Complaints(), Strings{"warning superblock " + std::to_string(damaged)});
            EXPECT_EQ(Mount()->Info().warning.find("superblock " + std::to_string(damaged)), 0u);
            ASSERT_EQ(RepairVolume(target.name).size(), 1u);
            EXPECT_TRUE(Complaints().empty());
            for (const int copy : {0, 1}) {
                EXPECT_EQ(ReadCopy(copy).mounts, mounts + 2) << "the damaged one may have counted one more";
            }
            DamageCopy(1 - damaged, damage);
            EXPECT_EQ(Content(), expected) << "either copy is enough after a repair";
            Commit("again", 2); // repairs too
            EXPECT_EQ(Content(), expected + "againagain");
            EXPECT_TRUE(Complaints().empty());
        }
    }
}

// The log goes on from the older one, in the other area: nothing is lost.
TEST_F(SuperblockStatesTest, OneOfTheMountBeforeAndTheNewerDamaged) {
    for (const int damaged : {0, 1}) {
        const std::string before = damaged == 0 ? "" : Content();
        const TreeSuperblock older = CommitInANewMount(2);
        WriteCopy(1 - damaged, older);
        DamageCopy(damaged, Damage::GARBAGE);
        EXPECT_EQ(Complaints(), Strings{"warning superblock " + std::to_string(damaged)});
        EXPECT_EQ(Content(), before + "laterlater");
        EXPECT_TRUE(TakesWrites());
        EXPECT_EQ(ReadCopy(0).mounts, older.mounts + 2) << "another number than that of the lost one";
        Commit("again", 3);
        EXPECT_EQ(Content(), before + "laterlateragainagainagain");
    }
}

TEST_F(SuperblockStatesTest, OneOldAndTheNewerDamaged) {
    Commit("first", 2);
    for (const int damaged : {0, 1}) {
        for (const Damage damage : DAMAGES) {
            const std::string before = Content();
            const TreeSuperblock older = CommitInANewMount(4);
            Commit("again", 4); // where the log of the older one was
            const TreeSuperblock newer = ReadCopy(0);
            WriteCopy(1 - damaged, older);
            DamageCopy(damaged, damage);
            std::string details;
            const Strings found = Complaints(&details);
            EXPECT_EQ(found.front(), "warning superblock " + std::to_string(damaged));
            EXPECT_EQ(std::count(found.begin(), found.end(), "error superblocks"), 1);
            const std::string old = "superblock " + std::to_string(1 - damaged) + " is old";
            EXPECT_NE(details.find(old), std::string::npos) << details;
            EXPECT_NE(Mount(), nullptr)
                << "what the older checkpoint has can be read, unless its pages are gone";
            ExpectUntouched();
            WriteCopy(damaged, newer); // had it only been a disturbance, nothing would be lost
            EXPECT_EQ(Content(), before + "laterlaterlaterlateragainagainagainagain");
            EXPECT_TRUE(TakesWrites());
        }
    }
}

// The records of the later mount cannot be read when the volume is mounted, and can later.
TEST_F(SuperblockStatesTest, RecordsOfAMountThatWasGivenUpStayInvalid) {
    Commit("first", 1);
    std::string expected = "first";
    for (const bool repair : {true, false}) {
        const TreeSuperblock older = CommitInANewMount(5);
        const JournalImage image = Load();
        const uint64_t log = LogBegin(image);
        const std::string records = ReadBytes(log, LogEnd(image) - log);
        WriteBytes(log, std::string(records.size(), '\0'));
        WriteCopy(0, older);
        DamageCopy(1, Damage::GARBAGE);
        EXPECT_EQ(Content(), expected);
        if (repair) {
            EXPECT_EQ(RepairVolume(target.name).size(), 1u);
        } else {
            Commit("again", 1);
            expected += "again";
        }
        WriteBytes(log + LogEnd(Load()) - LogBegin(Load()),
                   records.substr(LogEnd(Load()) - LogBegin(Load())));
        EXPECT_EQ(Content(), expected);
        EXPECT_TRUE(Complaints().empty());
        Commit("again", 3);
        expected += "againagainagain";
        EXPECT_EQ(Content(), expected);
    }
}

TEST_F(SuperblockStatesTest, TheSameSequenceAndDifferent) {
    Commit("first", 3);
    for (const int changed : {0, 1}) {
        TreeSuperblock superblock = ReadCopy(changed);
        superblock.created_us++;
        WriteCopy(changed, superblock);
        EXPECT_EQ(Complaints(), Strings{"error superblocks"});
        EXPECT_EQ(Content(), "firstfirstfirst");
        ExpectUntouched();
        superblock.created_us--;
        WriteCopy(changed, superblock);
        EXPECT_TRUE(Complaints().empty());
    }
}

TEST_F(SuperblockStatesTest, OfTwoVolumes) {
    Commit("first", 3);
    TreeSuperblock other = ReadCopy(1);
    other.uuid = MakeUuid();
    WriteCopy(1, other);
    EXPECT_EQ(Complaints(), (Strings{"warning superblock 1", "error superblocks"}));
    EXPECT_EQ(Content(), "firstfirstfirst");
    ExpectUntouched();
}

TEST_F(SuperblockStatesTest, OneByANewerVersion) {
    Commit("first", 3);
    const uint64_t events = medium->Events();
    for (const int newer : {0, 1}) {
        const TreeSuperblock superblock = ReadCopy(newer);
        for (const bool by_version : {true, false}) {
            TreeSuperblock changed = superblock;
            changed.version += by_version ? 1 : 0;
            changed.incompat = by_version ? 0 : 2;
            for (const bool other_damaged : {false, true}) {
                WriteCopy(newer, changed);
                const std::string other = ReadBytes(CopyOffset(1 - newer), ALLOCATION_UNIT_BYTES);
                if (other_damaged) {
                    DamageCopy(1 - newer, Damage::GARBAGE);
                }
                EXPECT_EQ(FailureOf([&] { Mount(); }), ErrorCode::UNSUPPORTED);
                EXPECT_EQ(FailureOf([&] { RepairVolume(target.name); }), ErrorCode::UNSUPPORTED);
                EXPECT_EQ(Complaints(), Strings{"error volume"});
                WriteBytes(CopyOffset(1 - newer), other);
            }
        }
        WriteCopy(newer, superblock);
    }
    EXPECT_GT(medium->Events(), events);
    EXPECT_EQ(Content(), "firstfirstfirst");
}

TEST_F(SuperblockStatesTest, BothDamaged) {
    Commit("first", 3);
    const std::string copies[] = {ReadBytes(CopyOffset(0), ALLOCATION_UNIT_BYTES),
                                  ReadBytes(CopyOffset(1), ALLOCATION_UNIT_BYTES)};
    for (const Damage first : DAMAGES) {
        for (const Damage second : DAMAGES) {
            DamageCopy(0, first);
            DamageCopy(1, second);
            const uint64_t events = medium->Events();
            const bool readable = first != Damage::UNREADABLE && second != Damage::UNREADABLE;
            const ErrorCode expected = readable ? ErrorCode::INVALID : ErrorCode::IO;
            std::string text;
            EXPECT_EQ(FailureOf([&] { Mount(); }, &text), expected) << text;
            EXPECT_EQ(FailureOf([&] { RepairVolume(target.name); }), expected);
            EXPECT_EQ(medium->Events(), events);
            WriteBytes(CopyOffset(0), copies[0]);
            WriteBytes(CopyOffset(1), copies[1]);
            EXPECT_EQ(Content(), "firstfirstfirst");
        }
    }
    for (const int copy : {0, 1}) {
        medium->Inject(SimulatedFault::CORRUPTION, CopyOffset(copy) / LBA + 3);
    }
    EXPECT_EQ(FailureOf([&] { Mount(); }), ErrorCode::CORRUPT);
    EXPECT_EQ(Complaints(), Strings{"error volume"});
}

// A commit is acknowledged when either copy alone leads to it.
TEST_F(SuperblockStatesTest, BothAreDurableBeforeACommitReturns) {
    std::string expected;
    for (int life = 0; life < 20; life++) {
        Commit("life ", 1 + life % 2);
        expected += life % 2 == 0 ? "life " : "life life ";
        for (const int damaged : {0, 1}) {
            for (uint64_t seed = 0; seed < 10; seed++) {
                PowerCutReport report;
                const auto survivor = medium->PowerCut(medium->Events(), seed, report);
                survivor->Inject(SimulatedFault::CORRUPTION, CopyOffset(damaged) / LBA + seed % 8);
                auto volume =
                    Volume::MountDevice(target, OpenSimulatedDevice(survivor, target, DeviceOptions()),
                                        MountOptions(), std::make_shared<IoStats>());
                ASSERT_EQ(ReadAll(*volume, "f"), expected) << "life " << life << ", copy " << damaged;
            }
        }
    }
}

// The power may go at every moment of a repair, and whatever is left is as good as before.
TEST_F(SuperblockStatesTest, ARepairMayBeInterrupted) {
    Commit("first", 3);
    for (const int damaged : {0, 1}) {
        const std::string expected = Content();
        DamageCopy(damaged, Damage::GARBAGE);
        const uint64_t before = medium->Events();
        ASSERT_EQ(RepairVolume(target.name).size(), 1u);
        for (uint64_t cut = before; cut <= medium->Events(); cut++) {
            for (uint64_t seed = 0; seed < 10; seed++) {
                PowerCutReport report;
                const auto survivor = medium->PowerCut(cut, seed, report);
                for (int life = 0; life < 2; life++) {
                    auto volume =
                        Volume::MountDevice(target, OpenSimulatedDevice(survivor, target, DeviceOptions()),
                                            MountOptions(), std::make_shared<IoStats>());
                    ASSERT_EQ(ReadAll(*volume, "f"), expected + (life == 0 ? "" : "x"))
                        << "cut after " << cut;
                    auto file = volume->Open("f", WriteMode());
                    file->Append("x", 1);
                    file->Sync();
                }
            }
        }
        Commit("again", 2);
    }
}

// Nothing is repaired beside damage that nobody can repair: a new epoch would leave it behind.
TEST_F(SuperblockStatesTest, ADamagedCopyBesideADamagedLog) {
    Commit("first", 5);
    WriteBytes(LogBegin(Load()) + 2 * LBA, std::string(LBA, 'g'));
    DamageCopy(1, Damage::GARBAGE);
    EXPECT_EQ(Complaints(), (Strings{"warning superblock 1", "error log"}));
    EXPECT_EQ(Content(), "firstfirst");
    ExpectUntouched();
}

} // namespace

} // namespace rawduck
