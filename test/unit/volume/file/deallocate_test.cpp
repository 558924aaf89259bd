//! Freed space is deallocated: once its record is durable, never what was given to a file again, and without
//! harm when the device refuses.
#include "support/fake_device.hpp"
#include "support/no_more_threads.hpp"
#include "support/test_support.hpp"
#include "support/volume_fixture.hpp"
#include "volume/journal/tree_superblock.hpp"
#include "volume/space/space.hpp"
#include "volume/upkeep/defragmenter.hpp"

#include <atomic>
#include <fstream>
#include <sys/stat.h>
#include <thread>

namespace rawduck {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds NEVER = std::chrono::hours(24);

//! A FakeDevice that remembers what it was told to forget, and forgets it.
class ForgetfulDevice final : public FakeDevice {
  public:
    ForgetfulDevice(FakeState &state, std::vector<DeviceRange> &told, std::atomic<bool> &hold,
                    std::atomic<int> &asked)
        : FakeDevice(state), told_(told), hold_(hold), asked_(asked) {}
    bool Deallocate(uint64_t device_offset, uint64_t length) override {
        FakeDevice::Deallocate(device_offset, length);
        asked_++;
        while (hold_) {
            std::this_thread::sleep_for(milliseconds(1));
        }
        std::lock_guard<std::mutex> guard(state_.mutex);
        told_.push_back({device_offset, length});
        std::fill_n(state_.bytes.begin() + static_cast<std::ptrdiff_t>(device_offset), length, '\xEE');
        return true;
    }

  private:
    std::vector<DeviceRange> &told_;
    std::atomic<bool> &hold_;
    std::atomic<int> &asked_;
};

//! Lets the device take its time with one write.
class HeldWrite {
  public:
    explicit HeldWrite(FakeState &state) {
        state.on_submit = [this](const Command &command) {
            if (command.opcode == Opcode::WRITE && hold_.exchange(false)) {
                held_ = true;
                while (held_) {
                    std::this_thread::sleep_for(milliseconds(1));
                }
            }
        };
    }
    void HoldNext() { hold_ = true; }
    void WaitUntilHeld() const {
        while (!held_) {
            std::this_thread::yield();
        }
    }
    void Release() { held_ = false; }

  private:
    std::atomic<bool> hold_{false}, held_{false};
};

class DeallocateTest : public ::testing::Test {
  protected:
    DeallocateTest() : state_(32 * MIB) {
        BlockIo io(std::make_unique<FakeDevice>(state_), BlockIoOptions(), "memory:fake", stats_);
        Volume::FormatDevice(io, FormatOptions(), 512);
    }
    std::shared_ptr<Volume> Mount() {
        MountOptions options;
        options.deallocate = mode_;
        options.deallocate_delay = delay_;
        Target target;
        target.kind = TargetKind::MEMORY;
        target.name = target.identity = "memory:fake";
        return Volume::MountDevice(target, std::make_unique<ForgetfulDevice>(state_, told_, hold_, asked_),
                                   options, stats_);
    }
    static std::vector<ExtentInfo> Fill(Volume &volume, const std::string &name, uint64_t length,
                                        char byte = 'x', FileKind kind = FileKind::OTHER) {
        auto file = volume.Open(name, WriteMode(kind));
        const std::string data(length, byte);
        file->Write(data.data(), data.size(), 0);
        file->Close();
        FileInfo info;
        EXPECT_TRUE(volume.Stat(name, info));
        return info.extents;
    }
    uint64_t ToldBytes() {
        std::lock_guard<std::mutex> guard(state_.mutex);
        uint64_t bytes = 0;
        for (const DeviceRange &range : told_) {
            bytes += range.length;
        }
        return bytes;
    }

    FakeState state_;
    std::vector<DeviceRange> told_;
    std::atomic<bool> hold_{false}; //!< the device takes its time to forget
    std::atomic<int> asked_{0};     //!< how often the device was told of a range, or is being told
    DeallocateMode mode_ = DeallocateMode::AUTO;
    milliseconds delay_ = NEVER;
    std::shared_ptr<IoStats> stats_ = std::make_shared<IoStats>();
};

TEST_F(DeallocateTest, ARemovedFileIsForgottenWhenTheLastWriterLeaves) {
    auto volume = Mount();
    const auto extents = Fill(*volume, "a", 1 * MIB);
    ASSERT_EQ(extents.size(), 1u);
    auto writer = volume->Open("other", WriteMode());
    volume->Remove("a");
    EXPECT_EQ(ToldBytes(), 0u) << "a writer is there, and the delay is not over";
    writer->Close();
    ASSERT_EQ(told_.size(), 1u);
    EXPECT_EQ(told_[0].device_offset, extents[0].device_offset);
    EXPECT_EQ(told_[0].length, 1 * MIB);
    EXPECT_EQ(stats_->Snapshot(IoOperation::DEALLOCATE).bytes, 1 * MIB);
    EXPECT_EQ(volume->Info().deallocate, "on");
}

TEST_F(DeallocateTest, NobodyWaitsForADeviceThatTakesItsTimeButWhoLeaves) {
    auto volume = Mount();
    Fill(*volume, "a", 1 * MIB);
    auto writer = volume->Open("other", WriteMode());
    volume->Remove("a");
    hold_ = true;
    std::atomic<bool> left{false};
    std::thread leaving([&] {
        writer->Close();
        left = true;
    });
    while (volume->Info().open_handles > 0) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(volume->FileExists("other"));
    auto next = volume->Open("next", WriteMode());
    next->Append("x", 1);
    next->Sync();
    next->Close();
    EXPECT_TRUE(volume->Info().writable);
    EXPECT_FALSE(left);
    hold_ = false;
    leaving.join();
    EXPECT_FALSE(volume->Info().writable) << "the last one gives up the lock";
    EXPECT_EQ(ToldBytes(), 1 * MIB);
}

TEST_F(DeallocateTest, WithoutAThreadForItFilesAreRemovedAllTheSame) {
    auto volume = Mount();
    {
        auto writer = volume->Open("writer", WriteMode());
        const auto extents = Fill(*volume, "x", MIB);
        {
            NoMoreThreads none;
            volume->Remove("x");
        }
        EXPECT_EQ(volume->Info().poisoned, "");
        EXPECT_EQ(ToldBytes(), 0u);
    }
    EXPECT_GE(ToldBytes(), MIB) << "when the last writer leaves";
}

TEST_F(DeallocateTest, AfterTheDelayWithoutAnybodyLeaving) {
    delay_ = milliseconds(1);
    auto volume = Mount();
    Fill(*volume, "a", 1 * MIB);
    auto writer = volume->Open("other", WriteMode());
    volume->Remove("a");
    for (int i = 0; i < 1000 && ToldBytes() == 0; i++) {
        std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_EQ(ToldBytes(), 1 * MIB);
}

TEST_F(DeallocateTest, WhatIsOpenStaysUntilItIsClosed) {
    auto volume = Mount();
    Fill(*volume, "a", 1 * MIB, 'y');
    auto reader = volume->Open("a", OpenMode());
    volume->Remove("a");
    std::string back(1 * MIB, '\0');
    EXPECT_EQ(reader->Read(&back[0], back.size(), 0), back.size());
    EXPECT_EQ(back, std::string(1 * MIB, 'y'));
    EXPECT_EQ(ToldBytes(), 0u);
}

TEST_F(DeallocateTest, SpaceThatWasGivenOutAgainIsLeftAlone) {
    auto volume = Mount();
    Fill(*volume, "a", 2 * MIB);
    auto writer = volume->Open("other", WriteMode());
    volume->Remove("a");
    const auto again = Fill(*volume, "b", 1 * MIB, 'b');
    writer->Close();
    EXPECT_EQ(ToldBytes(), 1 * MIB) << "only what nobody took";
    EXPECT_EQ(ReadAll(*volume, "b"), std::string(1 * MIB, 'b'));
    EXPECT_FALSE(again.empty());
}

TEST_F(DeallocateTest, TemporaryFilesAreForgottenToo) {
    auto volume = Mount();
    Fill(*volume, "duckdb_temp_1", 1 * MIB, 'x', FileKind::TEMP);
    volume->Remove("duckdb_temp_1");
    EXPECT_EQ(ToldBytes(), 1 * MIB);
}

TEST_F(DeallocateTest, AFailureHarmsNothingAndIsShown) {
    auto volume = Mount();
    Fill(*volume, "a", 1 * MIB);
    Fill(*volume, "b", 1 * MIB);
    state_.fail_deallocate = true;
    volume->Remove("a");
    EXPECT_EQ(stats_->Snapshot(IoOperation::DEALLOCATE).errors, 1u);
    EXPECT_EQ(stats_->Snapshot(IoOperation::DEALLOCATE).bytes, 0u);
    EXPECT_EQ(volume->Info().deallocate, "off: it failed, and is not tried again: fake: deallocate failed");
    volume->Remove("b");
    EXPECT_EQ(stats_->Snapshot(IoOperation::DEALLOCATE).errors, 1u);
    const uint64_t most = volume->Info().free_bytes;
    Fill(*volume, "c", most / 2, 'c');
    EXPECT_EQ(ReadAll(*volume, "c"), std::string(most / 2, 'c')) << "the space is free all the same";
}

TEST_F(DeallocateTest, TrimTellsOfEverythingFreeAndNothingElse) {
    auto volume = Mount();
    Fill(*volume, "a", 1 * MIB, 'a');
    Fill(*volume, "b", 1 * MIB, 'b');
    volume->Remove("a");
    told_.clear();
    const uint64_t trimmed = volume->Trim();
    EXPECT_EQ(ToldBytes(), trimmed);
    EXPECT_LE(trimmed, volume->Info().free_bytes);
    EXPECT_GT(trimmed + 64 * KIB, volume->Info().free_bytes) << "but for pieces too small for a device";
    volume.reset();
    EXPECT_EQ(ReadAll(*Mount(), "b"), std::string(1 * MIB, 'b'));
}

TEST_F(DeallocateTest, WhatIsBeingForgottenIsAPlaceToDefragmentTo) {
    auto volume = Mount();
    std::string content;
    for (char piece = 'a'; piece < 'q'; piece++) { // in turns, so that each has an extent of its own
        for (const char *name : {"x", "y"}) {
            auto file = volume->Open(name, WriteMode());
            file->Append(std::string(64 * KIB, piece).data(), 64 * KIB);
            file->Close();
        }
        content += std::string(64 * KIB, piece);
    }
    constexpr int SHORT = 300; // more than what is kept from contents
    for (int i = 0; i < SHORT; i++) {
        Fill(*volume, "short-" + std::to_string(i), 3 * ALLOCATION_UNIT_BYTES);
    }
    for (int i = 0; i < SHORT; i += 2) { // free, and too short for the device to be told
        volume->Remove("short-" + std::to_string(i));
    }
    hold_ = true;
    const int before = asked_;
    std::thread trimming([&] { volume->Trim(); });
    while (asked_ == before) {
        std::this_thread::yield();
    }
    std::thread releasing([&] {
        std::this_thread::sleep_for(milliseconds(50));
        hold_ = false;
    });
    const auto defragmenter = volume->Defragment("x", 0);
    while (defragmenter->Step()) {
    }
    releasing.join();
    trimming.join();
    EXPECT_EQ(defragmenter->NoPlaceBytes(), 0u);
    EXPECT_GE(defragmenter->ExtentsBefore(), 16u);
    EXPECT_LE(defragmenter->Extents(), 3u);
    EXPECT_EQ(ReadAll(*volume, "x"), content);
}

TEST_F(DeallocateTest, TrimOfWhatACrashHasLeft) {
    {
        auto volume = Mount();
        Fill(*volume, "a", 1 * MIB);
        auto writer = volume->Open("other", WriteMode());
        volume->Remove("a");
    } // forgotten before the device was told
    told_.clear();
    auto volume = Mount();
    EXPECT_EQ(ToldBytes(), 0u);
    volume->Trim();
    EXPECT_GE(ToldBytes(), 27 * MIB) << "of 32 MiB, some of which are metadata";
}

TEST_F(DeallocateTest, TrimSaysWhyItDoesNothing) {
    mode_ = DeallocateMode::OFF;
    Error error = CatchError([&] { Mount()->Trim(); });
    EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("nvme_deallocate"), std::string::npos) << error.what();
    mode_ = DeallocateMode::AUTO;
    state_.fail_deallocate = true;
    error = CatchError([&] { Mount()->Trim(); });
    EXPECT_EQ(error.Code(), ErrorCode::IO);
    EXPECT_NE(std::string(error.what()).find("fake: deallocate failed"), std::string::npos) << error.what();
}

TEST_F(DeallocateTest, OffTellsNothing) {
    mode_ = DeallocateMode::OFF;
    auto volume = Mount();
    Fill(*volume, "a", 1 * MIB);
    volume->Remove("a");
    EXPECT_FALSE(volume->Open("b", WriteMode())->Deallocate(0, 4096));
    EXPECT_EQ(ToldBytes(), 0u);
    EXPECT_EQ(volume->Info().deallocate, "off: nvme_deallocate says so");
    EXPECT_EQ(CatchError([] { ParseDeallocateMode("yes"); }).Code(), ErrorCode::INVALID);
}

TEST_F(DeallocateTest, NothingIsFreeOrForgottenBeforeTheRecordIsDurable) {
    delay_ = milliseconds(1);
    HeldWrite write(state_);
    auto volume = Mount();
    Fill(*volume, "a", 1 * MIB);
    auto writer = volume->Open("other", WriteMode());
    writer->Sync();
    const uint64_t free_bytes = volume->Info().free_bytes;
    write.HoldNext();
    std::thread remover([&] { volume->Remove("a"); });
    write.WaitUntilHeld();
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(ToldBytes(), 0u);
    EXPECT_EQ(volume->Info().free_bytes, free_bytes);
    write.Release();
    remover.join();
    EXPECT_EQ(volume->Info().free_bytes, free_bytes + 1 * MIB);
}

//! Data and the removal of its file in one record: its checksums cover what is deallocated next, and a mount
//! that finds them wrong would ignore the record.
TEST_F(DeallocateTest, TheLastRecordNeverLosesTheDataThatItVouchesFor) {
    const std::string data(32 * KIB, 'v');
    HeldWrite write(state_);
    auto volume = Mount();
    auto keep = volume->Open("keep", WriteMode());
    auto file = volume->Open("a", WriteMode());
    file->Sync();
    file->Append(data.data(), data.size());
    keep->Append("k", 1); // less than an LBA: the record is the only write
    write.HoldNext();
    std::thread first([&] { keep->Sync(); });
    write.WaitUntilHeld();
    std::thread second([&] { file->Close(); });
    std::this_thread::sleep_for(milliseconds(50)); // the one that waits in there queues before the next
    std::thread third([&] { volume->Remove("a"); });
    std::this_thread::sleep_for(milliseconds(50));
    write.Release();
    first.join();
    second.join();
    third.join();
    keep->Close();
    EXPECT_GE(ToldBytes(), data.size());
    volume.reset(); // as if the power went: everything acknowledged is on the device
    volume = Mount();
    EXPECT_FALSE(volume->FileExists("a")) << "its removal was acknowledged";
    EXPECT_EQ(ReadAll(*volume, "keep"), "k");
}

TEST(SpaceTest, WhoFindsNothingWaitsForWhatIsClaimed) {
    Space space(FreeSpace({0, 4096}), ZoneCandidates(4096));
    const auto claimed = space.ClaimFree(Extent{0, 0, 4096}, 4);
    ASSERT_EQ(claimed.size(), 1u);
    EXPECT_EQ(space.FreeUnits(), 4096u) << "claimed space is free";
    std::atomic<bool> given{false};
    std::thread thread([&] {
        const auto found = space.Allocate(16, AllocationUnit{0}, false, SpaceUse::CONTENT);
        EXPECT_TRUE(given);
        EXPECT_EQ(found.units, 16u);
    });
    std::this_thread::sleep_for(milliseconds(20));
    given = true;
    space.GiveBack(claimed);
    thread.join();
    EXPECT_EQ(space.FreeUnits(), 4080u);
}

TEST(SpaceTest, OnlyWhatIsFreeAndLargeEnoughIsClaimed) {
    Space space(FreeSpace({0, 1000}), ZoneCandidates(1000));
    const auto first = space.Allocate(100, AllocationUnit{0}, false, SpaceUse::HEADER);
    ASSERT_EQ(Index(first.start), 0u);
    space.Free({Extent{0, 10, 3}, Extent{0, 20, 8}});
    const auto claimed = space.ClaimFree(Extent{0, 0, 110}, 4);
    ASSERT_EQ(claimed.size(), 2u) << "not the three units at 10";
    EXPECT_EQ(claimed[0].start, 20u);
    EXPECT_EQ(claimed[0].units, 8u);
    EXPECT_EQ(claimed[1].start, 100u);
    EXPECT_EQ(claimed[1].units, 10u);
}

// Reserved blocks of a file that were never written cost each commit a write of the file system's journal.
TEST(FormatFile, TheLogAreasHaveBeenWritten) {
    const TemporaryFile file(16 * MIB);
    {
        std::fstream stream(file.Path(), std::ios::in | std::ios::out | std::ios::binary);
        stream << std::string(16 * MIB, 'x');
    }
    FormatOptions format;
    format.force = true;
    Volume::Format(file.Path(), format);
    const TreeSuperblock layout = MakeTreeSuperblock(16 * MIB, 4096, Uuid{}, "", 0);
    std::ifstream stream(file.Path(), std::ios::binary);
    for (const uint64_t start : layout.log_start) {
        std::string area(layout.log_units * ALLOCATION_UNIT_BYTES, '?');
        stream.seekg(static_cast<std::streamoff>(start * ALLOCATION_UNIT_BYTES));
        stream.read(&area[0], static_cast<std::streamsize>(area.size()));
        EXPECT_TRUE(area == std::string(area.size(), '\0'));
    }
    EXPECT_EQ(stream.get(), 'x') << "and no more than these";
}

TEST(DeallocateFile, AFileKeepsItsSpaceUnlessAskedOtherwise) {
    const TemporaryFile file(64 * MIB);
    FormatOptions format;
    format.force = true;
    format.size_bytes = 64 * MIB;
    Volume::Format(file.Path(), format);
    auto blocks = [&] {
        struct stat status;
        EXPECT_EQ(stat(file.Path().c_str(), &status), 0);
        return static_cast<uint64_t>(status.st_blocks) * 512;
    };
    const uint64_t before = blocks();
    for (const DeallocateMode mode : {DeallocateMode::AUTO, DeallocateMode::ON}) {
        MountOptions options;
        options.deallocate = mode;
        auto volume = Volume::Mount(ResolveTarget(file.Path()), options, std::make_shared<IoStats>());
        auto writer = volume->Open("a", WriteMode());
        const std::string data(8 * MIB, 'x');
        writer->Write(data.data(), data.size(), 0);
        writer->Close();
        volume->Remove("a");
        if (mode == DeallocateMode::AUTO) {
            EXPECT_GE(blocks(), before);
            EXPECT_EQ(volume->Info().deallocate.find("off: the file keeps"), 0u);
        } else {
            EXPECT_LT(blocks(), before - 7 * MIB);
        }
    }
}

} // namespace
} // namespace rawduck
