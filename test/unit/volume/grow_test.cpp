//! A volume that becomes larger: cut at every event, full, damaged, beside writers; and targets of the wrong size.

#include "support/damaged_volume.hpp"
#include "support/hooked_device.hpp"
#include "support/power_cut_workload.hpp"

#include <fcntl.h>
#include <thread>
#include <unistd.h>

namespace rawduck {

namespace {

constexpr uint64_t SMALL = 16 * MIB, LARGE = 80 * MIB; // one group of allocation units, and two

class GrowTest : public DamagedVolumeTest {
  protected:
    //! Of the volume that the superblock tells of.
    static uint64_t EndCopy(uint64_t capacity) { return capacity - ALLOCATION_UNIT_BYTES; }
    TreeSuperblock Read(uint64_t offset) {
        TreeSuperblock superblock;
        memcpy(static_cast<void *>(&superblock), ReadBytes(offset, ALLOCATION_UNIT_BYTES).data(),
               ALLOCATION_UNIT_BYTES);
        return superblock;
    }
    bool IsSuperblock(uint64_t offset) {
        bool unsupported = false;
        return ExamineSuperblock(Read(offset), UINT64_MAX, unsupported).empty();
    }
    void Damage(uint64_t offset) { WriteBytes(offset, std::string(ALLOCATION_UNIT_BYTES, 'x')); }
    uint64_t Capacity() { return Mount()->Info().capacity_bytes; }
    std::vector<std::string> Errors() {
        std::vector<std::string> errors;
        for (const CheckFinding &finding : CheckVolume(used_.name)) {
            const bool about_content = finding.what.rfind("file ", 0) == 0; // no databases
            if (finding.severity == CheckFinding::Severity::ERROR && !about_content) {
                errors.push_back(finding.what + ": " + finding.detail);
            }
        }
        return errors;
    }
    //! What the check says of it.
    std::string SizeText() {
        for (const CheckFinding &finding : CheckVolume(used_.name)) {
            if (finding.what == "size") {
                return finding.detail;
            }
        }
        return "";
    }
    //! What a cut has left, for the check under a name of its own.
    void Use(std::shared_ptr<SimulatedMedium> left) {
        medium.reset();
        PutSimulatedTarget(cut_.path, left);
        medium = std::move(left);
        used_ = cut_;
    }

    const Target cut_ = ResolveTarget("simulated:grow-cut");
    Target used_ = target; //!< where the check finds the medium
};

//! Nothing is lost, and the volume has one of the two sizes; either superblock is enough once it has the new one.
TEST_F(GrowTest, EveryEventOfAGrowth) {
    for (const SimulatedFua fua : {SimulatedFua::HONOURED, SimulatedFua::NONE}) {
        const auto life = Formatted(512, fua);
        medium = life;
        Commit(std::string(5 * MIB, 'a'), 1, "a");
        uint64_t begin = life->Events(), grown = 0, written = 0;
        const std::string gained(12 * MIB, 'g'); // more than was free before
        {
            auto volume = Mount();
            std::unique_ptr<OpenFile> writer;
            if (fua == SimulatedFua::NONE) { // the device becomes larger while somebody writes
                writer = volume->Open("a", WriteMode());
                AwaitCheckpoint(*volume);
                begin = life->Events();
            }
            life->Grow(LARGE);
            const VolumeGrowth growth = volume->Grow(0);
            EXPECT_EQ(growth.before_bytes, SMALL);
            EXPECT_EQ(growth.after_bytes, LARGE);
            grown = life->Events();
            EXPECT_FALSE(IsSuperblock(EndCopy(SMALL))) << "the old place may not be taken for a superblock";
            auto file = volume->Open("gained", WriteMode());
            file->Append(gained.data(), gained.size());
            file->Sync();
            written = life->Events();
        }
        int small = 0, large = 0;
        for (uint64_t event = begin; event <= life->Events(); event++) {
            for (uint64_t seed = 0; seed < (event <= grown ? 4 : event % 4 == 0 ? 1 : 0); seed++) {
                SCOPED_TRACE("after event " + std::to_string(event) + ", seed " + std::to_string(seed));
                Use(Cut(life, event, seed));
                const uint64_t capacity = Capacity();
                ASSERT_TRUE(capacity == LARGE || (capacity == SMALL && event < grown));
                (capacity == SMALL ? small : large)++;
                EXPECT_EQ(Errors(), std::vector<std::string>());
                EXPECT_TRUE(Content("a") == std::string(5 * MIB, 'a'));
                EXPECT_TRUE(event < written || Content("gained") == gained);
                const bool whole = IsSuperblock(0) && IsSuperblock(EndCopy(capacity));
                if (whole && (seed % 2 == 1 || capacity == LARGE)) {
                    Damage(seed % 2 == 1 ? EndCopy(capacity) : 0);
                    EXPECT_TRUE(Content("a") == std::string(5 * MIB, 'a'));
                }
                Commit("again", 3, "b");
                EXPECT_EQ(Mount()->Grow(0).after_bytes, LARGE);
                EXPECT_EQ(Content("b"), "againagainagain");
                EXPECT_EQ(Errors(), std::vector<std::string>());
                if (HasFailure()) {
                    return;
                }
            }
        }
        EXPECT_GT(small, 0);
        EXPECT_GT(large, 0);
    }
}

// The power goes when the superblock at the new end is there and nothing names it. The volume goes on with its old size;
// then superblock 0 is damaged. What the superblock at the end named is long gone.
TEST_F(GrowTest, AGrowthThatWasCutShortIsNeverGoneBackTo) {
    Commit("first", 3);
    const uint64_t begin = medium->Events();
    const auto life = medium;
    life->Grow(LARGE);
    Mount()->Grow(0);
    int tried = 0;
    for (uint64_t event = begin; event <= life->Events(); event++) {
        Use(Cut(life, event, 2));
        if (Capacity() != SMALL || !IsSuperblock(EndCopy(LARGE)) ||
            Read(EndCopy(LARGE)).capacity_units == Read(0).capacity_units) {
            continue;
        }
        tried++;
        Commit("later", 40);
        EXPECT_EQ(Read(EndCopy(LARGE)).sequence, Read(0).sequence);
        Damage(0);
        EXPECT_EQ(Content().size(), strlen("first") * 3 + strlen("later") * 40);
        EXPECT_EQ(Capacity(), SMALL);
        Commit("again", 1); // repairs
        EXPECT_TRUE(IsSuperblock(0));
        EXPECT_TRUE(IsSuperblock(EndCopy(SMALL)));
    }
    EXPECT_GT(tried, 0);
}

// Nobody has grown the volume yet. Superblock 0 may be torn while it is written, and be damaged at any time.
TEST_F(GrowTest, OnALargerTargetEitherSuperblockIsEnough) {
    medium->Grow(LARGE);
    Commit("first", 1);
    Damage(0);
    EXPECT_EQ(Content(), "first");
    Commit("second", 1);
    Damage(EndCopy(SMALL));
    EXPECT_EQ(Content(), "firstsecond");
    Commit("third", 1);
    medium->Grow(LARGE + MIB); // and once more
    Commit("fourth", 1);
    Damage(0);
    EXPECT_EQ(Content(), "firstsecondthirdfourth");
    // Somebody wrote who did not know of the copy at the end.
    const std::string at_end = ReadBytes(EndCopy(LARGE + MIB), ALLOCATION_UNIT_BYTES);
    Commit("fifth", 1);
    WriteBytes(EndCopy(LARGE + MIB), at_end);
    Damage(0);
    EXPECT_EQ(Content(), "firstsecondthirdfourthfifth");
}

TEST_F(GrowTest, AFullVolumeGrows) {
    const std::string piece(MIB / 4, 'p');
    uint64_t pieces = 0;
    auto volume = Mount();
    EXPECT_EQ(FailureOf([&] {
                  for (;; pieces++) {
                      auto file = volume->Open("f" + std::to_string(pieces), WriteMode());
                      file->Append(piece.data(), piece.size());
                      file->Sync();
                  }
              }),
              ErrorCode::NO_SPACE);
    const uint64_t free_before = volume->Info().free_bytes;
    for (uint64_t capacity = SMALL + MIB; capacity <= SMALL + 4 * MIB; capacity += MIB) {
        medium->Grow(capacity);
        EXPECT_EQ(volume->Info().growable_bytes, MIB);
        EXPECT_EQ(volume->Grow(0).after_bytes, capacity);
        EXPECT_EQ(volume->Info().growable_bytes, 0u);
        EXPECT_EQ(volume->Info().capacity_bytes, capacity);
    }
    EXPECT_GE(volume->Info().free_bytes, free_before + 3 * MIB);
    for (int i = 0; i < 8; i++) {
        auto file = volume->Open("more" + std::to_string(i), WriteMode());
        file->Append(piece.data(), piece.size());
        file->Sync();
    }
    for (uint64_t i = 0; i < pieces; i++) {
        volume->Remove("f" + std::to_string(i));
    }
    volume.reset();
    EXPECT_EQ(Errors(), std::vector<std::string>());
    EXPECT_EQ(Content("more7"), piece);
}

TEST_F(GrowTest, ATargetSmallerThanItsVolumeIsNamedWithBothSizes) {
    Commit("first", 1);
    const auto life = medium;
    life->Grow(LARGE);
    Mount()->Grow(0);
    for (const uint64_t bytes : {SMALL, LARGE - ALLOCATION_UNIT_BYTES}) {
        SimulatedOptions options;
        options.capacity_bytes = bytes;
        options.lba_size = options.atomic_write_bytes = LBA;
        const std::string content = ReadBytes(0, bytes);
        Use(std::make_shared<SimulatedMedium>(options));
        WriteBytes(0, content);
        const uint64_t events = medium->Events();
        std::string text;
        EXPECT_EQ(FailureOf([&] { Mount(); }, &text), ErrorCode::CORRUPT);
        EXPECT_NE(text.find("the volume has " + std::to_string(LARGE)), std::string::npos) << text;
        EXPECT_NE(text.find("its target only " + std::to_string(bytes)), std::string::npos) << text;
        EXPECT_EQ(Errors().size(), 1u);
        EXPECT_EQ(medium->Events(), events) << "nothing was written";
        medium = life;
    }
}

TEST_F(GrowTest, ALargerTargetIsToldOf) {
    EXPECT_EQ(SizeText(), "");
    medium->Grow(SMALL + MIB + 512); // not a whole allocation unit more
    EXPECT_NE(SizeText().find("`rawduck grow " + target.name + "` uses the rest"), std::string::npos);
    EXPECT_EQ(Mount()->Info().growable_bytes, MIB);
    EXPECT_EQ(Mount()->Grow(0).after_bytes, SMALL + MIB);
    EXPECT_EQ(SizeText(), "");
    const uint64_t events = medium->Events();
    EXPECT_EQ(Mount()->Info().growable_bytes, 0u);
    EXPECT_EQ(medium->Events(), events);
}

TEST_F(GrowTest, AnEndThatCannotBeWrittenLeavesTheVolumeAsItIs) {
    auto volume = Mount();
    AwaitFirstCheckpoint(*volume);
    AwaitCheckpoint(*volume);
    medium->Grow(LARGE);
    auto file = volume->Open("f", WriteMode());
    AwaitCheckpoint(*volume);
    medium->Inject(SimulatedFault::WRITE_ERROR, medium->Events());
    EXPECT_EQ(FailureOf([&] { volume->Grow(0); }), ErrorCode::IO);
    EXPECT_EQ(volume->Info().poisoned, "");
    EXPECT_EQ(volume->Info().capacity_bytes, SMALL);
    file->Append("x", 1);
    file->Sync();
    EXPECT_EQ(volume->Grow(0).after_bytes, LARGE);
}

// Space that readers beside the writer are told of may lie in what was gained.
TEST_F(GrowTest, WhatReadersAreToldOfFitsIntoTheirSuperblock) {
    auto volume = Mount();
    medium->Grow(LARGE);
    volume->Grow(0);
    const std::string content(40 * MIB, 'c');
    {
        auto file = volume->Open("f", WriteMode());
        file->Append(content.data(), content.size());
        file->Sync();
    }
    const ReaderImage image = DecodeReaderImage(EncodeReaderImage(volume->ImageOf("f", "f")), target.name);
    EXPECT_EQ(image.superblock.capacity_units * ALLOCATION_UNIT_BYTES, LARGE);
}

TEST(GrowBesideWritersTest, NothingIsLostAndNothingGivenTwice) {
    SimulatedVolume simulated(4096, SMALL);
    auto volume = simulated.Mount();
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int number = 0; number < 3; number++) {
        threads.emplace_back([&, number] {
            const std::string bytes(64 * KIB, static_cast<char>('a' + number));
            for (int round = 0; !stop; round++) {
                const std::string name = "f" + std::to_string(number) + "_" + std::to_string(round % 4);
                auto file = volume->Open(name, WriteMode());
                file->Truncate(0);
                for (int i = 0; i < 6; i++) {
                    file->Append(bytes.data(), bytes.size());
                    file->Sync();
                }
                file.reset();
                ASSERT_EQ(ReadAll(*volume, name), std::string(6 * bytes.size(), bytes[0]));
            }
        });
    }
    for (uint64_t capacity = SMALL + MIB; capacity <= SMALL + 24 * MIB; capacity += MIB) {
        simulated.medium->Grow(capacity);
        EXPECT_EQ(volume->Grow(0).after_bytes, capacity);
        volume->Info();
    }
    stop = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    volume = simulated.MountAgain(std::move(volume));
    EXPECT_EQ(volume->Info().capacity_bytes, SMALL + 24 * MIB);
    for (const FileInfo &info : volume->Files()) {
        EXPECT_EQ(ReadAll(*volume, info.name), std::string(info.size, info.name[1] - '0' + 'a'));
    }
}

class GrowFileTest : public ::testing::Test {
  protected:
    GrowFileTest() {
        fd = mkstemp(path);
        EXPECT_GE(fd, 0);
        FormatOptions options;
        options.size_bytes = SMALL;
        options.force = true;
        Volume::Format(path, options);
    }
    ~GrowFileTest() override {
        close(fd);
        unlink(path);
    }
    uint64_t Length() const { return static_cast<uint64_t>(lseek(fd, 0, SEEK_END)); }
    VolumePin Pin() const { return PinVolume(path, MountOptions()); }

    char path[32] = "/var/tmp/rawduck_grow_XXXXXX";
    int fd = -1;
};

TEST_F(GrowFileTest, IsMadeLargerWithAllOfItsSpace) {
    EXPECT_EQ(Pin()->Grow(LARGE).after_bytes, LARGE);
    EXPECT_EQ(Length(), LARGE);
    struct stat status;
    ASSERT_EQ(fstat(fd, &status), 0);
    EXPECT_GE(static_cast<uint64_t>(status.st_blocks) * 512, LARGE) << "it does not run out later";
    EXPECT_EQ(Pin()->Info().capacity_bytes, LARGE);
    EXPECT_EQ(Pin()->Grow(LARGE).before_bytes, LARGE) << "again, it is as large already";
    EXPECT_EQ(Pin()->Grow(0).before_bytes, LARGE);
    for (const CheckFinding &finding : CheckVolume(path)) {
        EXPECT_EQ(finding.severity, CheckFinding::Severity::OK) << finding.detail;
    }
}

TEST_F(GrowFileTest, ThatOthersHaveMadeLargerIsReservedToo) {
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(LARGE + 100)), 0);
    EXPECT_EQ(Pin()->Info().growable_bytes, LARGE - SMALL);
    EXPECT_EQ(Pin()->Grow(0).after_bytes, LARGE);
    struct stat status;
    ASSERT_EQ(fstat(fd, &status), 0);
    EXPECT_GE(static_cast<uint64_t>(status.st_blocks) * 512, LARGE);
    EXPECT_EQ(Pin()->Info().growable_bytes, 0u);
}

TEST_F(GrowFileTest, SizesThatCannotBeChangeNothing) {
    std::string text;
    EXPECT_EQ(FailureOf([&] { Pin()->Grow(SMALL - MIB); }, &text), ErrorCode::INVALID);
    EXPECT_NE(text.find("cannot shrink"), std::string::npos) << text;
    EXPECT_EQ(FailureOf([&] { Pin()->Grow(uint64_t(1) << 50); }, &text), ErrorCode::NO_SPACE);
    EXPECT_EQ(Length(), SMALL) << "it has its old length again";
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(LARGE)), 0);
    EXPECT_EQ(FailureOf([&] { Pin()->Grow(SMALL + MIB); }, &text), ErrorCode::INVALID);
    EXPECT_NE(text.find("has " + std::to_string(LARGE) + " bytes already"), std::string::npos) << text;
    EXPECT_EQ(Pin()->Info().capacity_bytes, SMALL);
}

// Made longer again it would have zeros where the volume had something.
TEST_F(GrowFileTest, OneThatWasMadeShorterUnderTheVolumeStaysAsItIs) {
    for (const uint64_t bytes : {SMALL - MIB, SMALL - 1}) {
        ASSERT_EQ(ftruncate(fd, static_cast<off_t>(SMALL)), 0);
        const VolumePin pin = Pin();
        std::unique_ptr<OpenFile> writer;
        if (bytes == SMALL - MIB) { // and somebody writes
            writer = pin->Open("f", WriteMode());
            AwaitCheckpoint(*pin);
        }
        ASSERT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
        for (const uint64_t size : {uint64_t(0), SMALL, LARGE}) {
            std::string text;
            EXPECT_EQ(FailureOf([&] { pin->Grow(size); }, &text), ErrorCode::INVALID);
            EXPECT_NE(text.find("it was made smaller"), std::string::npos) << text;
            EXPECT_NE(text.find("restore it from a backup"), std::string::npos) << text;
            EXPECT_EQ(Length(), bytes);
        }
    }
}

TEST(GrowMemoryTest, IsAsLargeAsItWasMade) {
    MemoryVolume memory(4096, SMALL);
    auto volume = memory.Mount();
    EXPECT_EQ(volume->Grow(0).after_bytes, SMALL);
    EXPECT_EQ(FailureOf([&] { volume->Grow(LARGE); }), ErrorCode::INVALID);
}

} // namespace

} // namespace rawduck
