//! What a format leaves that is interrupted, and what it leaves of the volume that was there.

#include "support/damaged_volume.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace rawduck {

namespace {

//! The device as a file that is to become shorter, with a volume of its own length on it that is nearly full.
class FormatCutTest : public DamagedVolumeTest {
  protected:
    static constexpr uint64_t CAPACITY_BEFORE = 2 * CAPACITY;

    FormatCutTest() {
        SimulatedOptions options;
        options.capacity_bytes = CAPACITY_BEFORE;
        options.lba_size = options.atomic_write_bytes = LBA;
        medium = std::make_shared<SimulatedMedium>(options);
        Volume::FormatDevice(*OpenIo(), FormatOptions(), LBA);
        content_ = std::string(20 * MIB, 'o');
        Commit(content_, 1);
    }

    TreeSuperblock Read(uint64_t offset) {
        TreeSuperblock superblock;
        memcpy(static_cast<void *>(&superblock), ReadBytes(offset, ALLOCATION_UNIT_BYTES).data(),
               ALLOCATION_UNIT_BYTES);
        return superblock;
    }

    std::string content_;
};

TEST_F(FormatCutTest, IsTheOldVolumeOrTheNewOne) {
    const uint64_t before = medium->Events();
    Volume::FormatDevice(*OpenIo(), FormatOptions(), LBA, CAPACITY);
    const auto formatted = medium;
    int old = 0, fresh = 0;
    for (uint64_t event = before; event <= formatted->Events(); event++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            PowerCutReport report;
            medium = formatted->PowerCut(event, seed, report);
            SCOPED_TRACE("after event " + std::to_string(event) + ", seed " + std::to_string(seed));
            std::shared_ptr<Volume> volume;
            try {
                volume = Mount();
            } catch (const Error &error) {
                // A torn superblock 0 is neither.
                EXPECT_GT(report.writes_torn + report.units_garbage, 0u) << error.what();
                continue;
            }
            if (volume->Info().capacity_bytes == CAPACITY) {
                EXPECT_TRUE(volume->Files().empty());
                fresh++;
            } else {
                EXPECT_TRUE(ReadAll(*volume, "f") == content_)
                    << "a part of what the old volume holds is gone";
                old++;
            }
        }
    }
    EXPECT_GT(old, 0);
    EXPECT_GT(fresh, 0);
}

TEST_F(FormatCutTest, NothingOfTheOldVolumeIsEverChosen) {
    for (const uint64_t capacity : {CAPACITY, CAPACITY_BEFORE}) { // shorter, and as long as the device again
        Volume::FormatDevice(*OpenIo(), FormatOptions(), LBA, capacity);
        EXPECT_EQ(Mount()->Info().capacity_bytes, capacity);
        const TreeSuperblock fresh = Read(0);
        for (const uint64_t end : {CAPACITY, CAPACITY_BEFORE}) {
            const TreeSuperblock found = Read(end - ALLOCATION_UNIT_BYTES);
            const bool is_superblock = memcmp(found.magic, SUPERBLOCK_MAGIC, sizeof(SUPERBLOCK_MAGIC)) == 0;
            EXPECT_EQ(is_superblock, end == capacity) << "at the end of " << end;
            EXPECT_TRUE(!is_superblock || found.uuid == fresh.uuid);
        }
    }
}

TEST(FormatFileTest, AShorterVolumeOutlivesDamageToItsFirstSuperblock) {
    char path[] = "/var/tmp/rawduck_format_XXXXXX";
    const int fd = mkstemp(path);
    ASSERT_GE(fd, 0);
    FormatOptions options;
    options.force = true;
    for (const uint64_t size : {64 * MIB, 16 * MIB, 32 * MIB}) {
        options.size_bytes = size;
        Volume::Format(path, options);
        const std::string uuid = PinVolume(path, MountOptions())->Info().uuid;
        char before[ALLOCATION_UNIT_BYTES];
        const std::string damaged(ALLOCATION_UNIT_BYTES, 'x');
        ASSERT_EQ(pread(fd, before, ALLOCATION_UNIT_BYTES, 0), static_cast<ssize_t>(ALLOCATION_UNIT_BYTES));
        ASSERT_EQ(pwrite(fd, damaged.data(), ALLOCATION_UNIT_BYTES, 0),
                  static_cast<ssize_t>(ALLOCATION_UNIT_BYTES));
        EXPECT_EQ(PinVolume(path, MountOptions())->Info().uuid, uuid);
        ASSERT_EQ(pwrite(fd, before, ALLOCATION_UNIT_BYTES, 0), static_cast<ssize_t>(ALLOCATION_UNIT_BYTES));
    }
    close(fd);
    unlink(path);
}

} // namespace

} // namespace rawduck
