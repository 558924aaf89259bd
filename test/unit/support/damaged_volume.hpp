//! A volume on a simulated device whose metadata can be damaged, for tests.
#pragma once

#include "io/device/simulated/simulated_device.hpp"
#include "support/volume_fixture.hpp"
#include "volume/check.hpp"
#include "volume/journal/read_journal.hpp"

#include <cstring>

namespace rawduck {

class DamagedVolumeTest : public ::testing::Test {
  protected:
    static constexpr uint32_t LBA = 512;
    static constexpr uint64_t CAPACITY = 16 * MIB;

    DamagedVolumeTest() {
        SimulatedOptions options;
        options.capacity_bytes = CAPACITY;
        options.lba_size = options.atomic_write_bytes = LBA;
        medium = std::make_shared<SimulatedMedium>(options);
        PutSimulatedTarget(target.path, medium);
        Volume::FormatDevice(*OpenIo(), FormatOptions(), LBA);
    }

    std::unique_ptr<BlockIo> OpenIo() {
        return std::make_unique<BlockIo>(OpenSimulatedDevice(medium, target, DeviceOptions()),
                                         BlockIoOptions(), target.name, std::make_shared<IoStats>());
    }
    std::shared_ptr<Volume> Mount() {
        return Volume::MountDevice(target, OpenSimulatedDevice(medium, target, DeviceOptions()),
                                   MountOptions(), std::make_shared<IoStats>());
    }
    JournalImage Load() { return ReadJournal(*OpenIo()); }
    //! Where the last epoch of the log starts and ends, in bytes on the target.
    static uint64_t LogBegin(const JournalImage &image) {
        return LogStart(image.superblock, image.log.back().area);
    }
    static uint64_t LogEnd(const JournalImage &image) { return LogBegin(image) + image.log.back().bytes; }

    //! So many commits of one mount, each of which is a record of the log.
    void Commit(const std::string &bytes, int times, const std::string &name = "f") {
        auto volume = Mount();
        auto file = volume->Open(name, WriteMode());
        for (int i = 0; i < times; i++) {
            file->Append(bytes.data(), bytes.size());
            file->Sync();
        }
    }
    std::string Content(const std::string &name = "f") { return ReadAll(*Mount(), name); }
    bool TakesWrites() {
        auto volume = Mount();
        try {
            volume->Open("f", WriteMode());
            return true;
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::POISONED) << error.what();
            return false;
        }
    }

    std::string ReadBytes(uint64_t offset, uint64_t length) {
        std::string bytes(length, '\0');
        OpenIo()->Read(offset, &bytes[0], length);
        return bytes;
    }
    //! Makes what cannot be read readable again, too.
    void WriteBytes(uint64_t offset, const std::string &bytes) {
        const std::unique_ptr<BlockIo> io = OpenIo();
        io->Write(offset, bytes.data(), bytes.size());
        io->Flush();
    }
    void MakeUnreadable(uint64_t offset) { medium->Inject(SimulatedFault::READ_ERROR, offset / LBA); }

    static uint64_t CopyOffset(int copy) { return copy == 0 ? 0 : CAPACITY - ALLOCATION_UNIT_BYTES; }
    TreeSuperblock ReadCopy(int copy) {
        TreeSuperblock superblock;
        memcpy(static_cast<void *>(&superblock), ReadBytes(CopyOffset(copy), ALLOCATION_UNIT_BYTES).data(),
               ALLOCATION_UNIT_BYTES);
        return superblock;
    }
    void WriteCopy(int copy, TreeSuperblock superblock) {
        SealSuperblock(superblock);
        WriteBytes(CopyOffset(copy),
                   std::string(reinterpret_cast<const char *>(&superblock), ALLOCATION_UNIT_BYTES));
    }

    //! "error log", "warning superblock 1": what the check complains of.
    std::vector<std::string> Complaints(std::string *details = nullptr) {
        std::vector<std::string> found;
        for (const CheckFinding &finding : CheckVolume(target.name)) {
            if (finding.severity != CheckFinding::Severity::OK) {
                const bool error = finding.severity == CheckFinding::Severity::ERROR;
                found.push_back((error ? "error " : "warning ") + finding.what);
                if (details) {
                    *details += finding.detail;
                }
            }
        }
        return found;
    }
    std::vector<std::string> Planned() {
        std::vector<std::string> steps;
        for (const CheckFinding &finding : CheckVolume(target.name)) {
            if (!finding.repair.empty()) {
                steps.push_back(finding.repair);
            }
        }
        return steps;
    }
    //! What must not be repaired: nothing is offered, and nothing is written.
    void ExpectUntouched() {
        const uint64_t events = medium->Events();
        EXPECT_TRUE(Planned().empty());
        EXPECT_TRUE(RepairVolume(target.name).empty());
        EXPECT_FALSE(TakesWrites());
        EXPECT_EQ(medium->Events(), events) << "nothing was written";
    }

    const Target target = ResolveTarget(std::string("simulated:damaged-") +
                                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::shared_ptr<SimulatedMedium> medium;
};

} // namespace rawduck
