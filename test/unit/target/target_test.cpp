//! ResolveTarget, InspectTarget, FindOccupants and ListBlockDevices.
#include "common/units.hpp"
#include "io/open_device.hpp"
#include "support/test_support.hpp"
#include "target/inspect.hpp"
#include "target/occupants/occupants.hpp"
#include "target/target.hpp"
#include "volume/volume.hpp"

#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>

namespace rawduck {
namespace {

std::string Joined(const std::vector<Occupant> &occupants) {
    std::string text;
    for (const auto &occupant : occupants) {
        text += occupant.what + (occupant.forceable ? "; " : " (in use); ");
    }
    return text;
}

std::string OccupantsOf(const std::string &path) {
    return Joined(FindOccupants(ResolveTarget(path)));
}

//! False when the tool is missing or fails.
bool RunTool(const std::string &command) {
    return system(("PATH=$PATH:/sbin:/usr/sbin; " + command + " >/dev/null 2>&1").c_str()) == 0;
}

void WriteAt(const std::string &path, uint64_t offset, const std::string &bytes) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(stream.good());
}

TEST(ResolveTarget, FollowsLinksToOneIdentity) {
    TemporaryFile file(8192);
    const std::string link = file.Path() + ".link";
    ASSERT_EQ(symlink(file.Path().c_str(), link.c_str()), 0);
    Target direct = ResolveTarget(file.Path()), linked = ResolveTarget(link);
    unlink(link.c_str());
    EXPECT_EQ(direct.kind, TargetKind::REGULAR_FILE);
    EXPECT_EQ(direct.identity, linked.identity);
    EXPECT_EQ(direct.path, linked.path);
    EXPECT_EQ(linked.name, link);
    EXPECT_EQ(direct.identity.find("file:"), 0u);
}

TEST(ResolveTarget, AVfioFunctionHasOneName) {
    const Target target = ResolveTarget("vfio:0000:0a:1f.7n12");
    EXPECT_EQ(target.kind, TargetKind::VFIO_FUNCTION);
    EXPECT_EQ(target.path, "0000:0a:1f.7");
    EXPECT_EQ(target.namespace_id, 12u);
    EXPECT_EQ(target.identity, "vfio:0000:0a:1f.7n12");
    EXPECT_TRUE(HasNoPath(target.name));
    EXPECT_FALSE(HasNode(target.kind));
    EXPECT_FALSE(IsInProcess(target.kind)) << "it is a disk of this machine";
    EXPECT_FALSE(IsInProcess(target.name));
    EXPECT_EQ(CatchError([&] { InspectTarget(target); }).Code(), ErrorCode::INVALID);
    for (const char *other :
         {"vfio:", "vfio:0000:0a:1f.7", "vfio:0000:0A:1f.7n1", "vfio:0a:1f.7n1", "vfio:0000:0a:1f.7n",
          "vfio:0000:0a:1f.7n0", "vfio:0000:0a:1f.7n01", "vfio:0000:0a:1f.7n4294967295",
          "vfio:0000:0a:1f.7n1x", "vfio:0000-0a:1f.7n1", "vfio:00001:0a:1f.7n1", "vfio:100000000:0a:1f.7n1",
          "vfio:0000:0a:1f.7:n1", "vfio:000:0a:1f.7n1"}) {
        const Error error = CatchError([&] { ResolveTarget(other); });
        EXPECT_EQ(error.Code(), ErrorCode::INVALID) << other;
        EXPECT_NE(std::string(error.what()).find("vfio:0000:01:00.0n1"), std::string::npos) << error.what();
    }
}

TEST(ResolveTarget, AVfioFunctionMayHaveADomainOfMoreDigits) {
    for (const std::string address : {"10000:e1:00.0", "ffffffff:00:1f.7"}) {
        const Target target = ResolveTarget("vfio:" + address + "n3");
        EXPECT_EQ(target.path, address);
        EXPECT_EQ(target.namespace_id, 3u);
    }
}

TEST(ResolveTarget, Memory) {
    Target target = ResolveTarget("memory:a/b");
    EXPECT_EQ(target.kind, TargetKind::MEMORY);
    EXPECT_EQ(target.path, "a/b");
    EXPECT_EQ(target.identity, "memory:a/b");
    EXPECT_EQ(CatchError([] { ResolveTarget("memory:"); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([&] { InspectTarget(target); }).Code(), ErrorCode::INVALID);
    EXPECT_TRUE(FindOccupants(target).empty());
}

TEST(ResolveTarget, RefusesWhatIsNoTarget) {
    EXPECT_EQ(CatchError([] { ResolveTarget(""); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([] { ResolveTarget("relative"); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([] { ResolveTarget(std::string("/dev/a\0b", 8)); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([] { ResolveTarget("/"); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([] { ResolveTarget("/dev/null"); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([] { ResolveTarget("/nonexistent/device"); }).Code(), ErrorCode::NOT_FOUND);
    EXPECT_EQ(CatchError([] { ResolveTarget("/etc/passwd/device"); }).Code(), ErrorCode::NOT_FOUND);
}

// A query opens hundreds of files. Once none of them is open, another disk may have the number of theirs.
TEST(InspectTarget, TheDiskOfFilesIsLookedUpOnceWhileOneIsOpen) {
    const TemporaryFile one(64 * KIB), other(64 * KIB);
    std::weak_ptr<const TargetInfo> disk;
    {
        const TargetInfo first = InspectTarget(ResolveTarget(one.Path()));
        ASSERT_TRUE(first.disk);
        EXPECT_EQ(first.disk, InspectTarget(ResolveTarget(other.Path())).disk);
        disk = first.disk;
    }
    EXPECT_TRUE(disk.expired());
    DeviceOptions options;
    options.engine = "posix";
    std::unique_ptr<Device> device = OpenDevice(ResolveTarget(one.Path()), options);
    disk = InspectTarget(ResolveTarget(other.Path())).disk;
    EXPECT_FALSE(disk.expired());
    device.reset();
    EXPECT_TRUE(disk.expired());
}

TEST(InspectTarget, ARegularFile) {
    TemporaryFile file(1 * MIB + 100);
    TargetInfo info = InspectTarget(ResolveTarget(file.Path()));
    EXPECT_EQ(info.capacity_bytes, 1 * MIB + 100);
    EXPECT_TRUE(info.lba_size == 512 || info.lba_size == 4096) << info.lba_size;
    EXPECT_GT(info.memory_alignment, 0u);
    EXPECT_TRUE(IsAligned(info.memory_alignment, info.memory_alignment));
    EXPECT_TRUE(info.volatile_write_cache);
    EXPECT_FALSE(info.read_only);
}

TEST(FindOccupants, AnEmptyOrZeroedFileIsFree) {
    TemporaryFile empty(0), zeros(5 * MIB);
    EXPECT_EQ(OccupantsOf(empty.Path()), "");
    EXPECT_EQ(OccupantsOf(zeros.Path()), "");
}

TEST(FindOccupants, AnyOtherContent) {
    TemporaryFile file(5 * MIB);
    WriteAt(file.Path(), 5 * MIB - 1, "x");
    EXPECT_EQ(OccupantsOf(file.Path()),
              "it is a non-empty file of 5242880 bytes that is not a rawduck volume; ");
    TemporaryFile text(0);
    WriteAt(text.Path(), 0, "a,b\n1,2\n");
    EXPECT_EQ(OccupantsOf(text.Path()), "it is a non-empty file of 8 bytes that is not a rawduck volume; ");
}

TEST(FindOccupants, AVolumeByEitherSuperblock) {
    for (uint64_t offset : {uint64_t(0), 5 * MIB - 4096}) {
        TemporaryFile file(5 * MIB + 100);
        WriteAt(file.Path(), offset, std::string("RAWDUCK\0", 8));
        EXPECT_EQ(OccupantsOf(file.Path()), "it is a rawduck volume; ");
    }
}

TEST(FindOccupants, TheLabelAndUuidOfAVolume) {
    TemporaryFile file(64 * MIB);
    FormatOptions options;
    options.label = "sales\x1b[31m";
    Volume::Format(file.Path(), options);
    const Occupant occupant = FindOccupants(ResolveTarget(file.Path())).at(0);
    EXPECT_EQ(occupant.what, "it is a rawduck volume (label sales?[31m)");
    EXPECT_EQ(occupant.kind, "volume");
    EXPECT_EQ(occupant.uuid.size(), 36u);
    EXPECT_NE(occupant.uuid.substr(0, 8), "00000000");
}

TEST(FindOccupants, ALabelThatIsNoText) {
    for (const auto &[label, shown] : std::vector<std::pair<std::string, std::string>>{
             {"gr\u00f6\u00dfe \u20ac \U0001f986", "gr\u00f6\u00dfe \u20ac \U0001f986"},
             {"\xff", "?"},
             {"a\xc3", "a?"},
             {"a\xc3(", "a?("},
             {"\xed\xa0\x80", "???"},
             {"\xc0\xaf", "??"},
             {"\xf4\x90\x80\x80", "????"},
             {"\x80", "?"}}) {
        TemporaryFile file(5 * MIB);
        WriteAt(file.Path(), 0, std::string("RAWDUCK\0\0\0\0\0\2", 13));
        WriteAt(file.Path(), 168, label);
        EXPECT_EQ(OccupantsOf(file.Path()), "it is a rawduck volume (label " + shown + "); ");
    }
}

std::string IdentityOfFirst(const std::string &path) {
    return FindOccupants(ResolveTarget(path)).at(0).identity;
}

TEST(FindOccupants, AnIdentityIsOfWhatLiesThere) {
    TemporaryFile file(8 * MIB), copy(8 * MIB);
    WriteAt(file.Path(), 0, "text");
    WriteAt(copy.Path(), 0, "text");
    const std::string identity = IdentityOfFirst(file.Path());
    EXPECT_EQ(IdentityOfFirst(file.Path()), identity);
    EXPECT_EQ(identity.substr(0, 5), "file:");
    EXPECT_NE(IdentityOfFirst(copy.Path()), identity);
    const struct timespec long_ago[2] = {{0, UTIME_OMIT}, {1000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, file.Path().c_str(), long_ago, 0), 0);
    std::string last = IdentityOfFirst(file.Path());
    EXPECT_NE(last, identity);
    // What its time does not say, its bytes and its size do.
    for (const uint64_t offset : {uint64_t(100), 8 * MIB - 1, 9 * MIB}) {
        WriteAt(file.Path(), offset, "x");
        ASSERT_EQ(utimensat(AT_FDCWD, file.Path().c_str(), long_ago, 0), 0);
        const std::string now = IdentityOfFirst(file.Path());
        EXPECT_NE(now, last) << offset;
        last = now;
    }
}

TEST(FindOccupants, ADuckDbDatabase) {
    TemporaryFile file(1 * MIB);
    WriteAt(file.Path(), 0, std::string("checksumDUCK"));
    EXPECT_EQ(OccupantsOf(file.Path()), "it is a DuckDB database file; ");
}

TEST(FindOccupants, AFileSystem) {
    TemporaryFile file(16 * MIB);
    if (!RunTool("mkfs.ext4 -q -F -L precious '" + file.Path() + "'")) {
        GTEST_SKIP() << "mkfs.ext4 is not installed (package e2fsprogs)";
    }
    EXPECT_EQ(OccupantsOf(file.Path()), "it carries an ext4 file system (label precious); ");
}

TEST(FindOccupants, ASwapArea) {
    TemporaryFile file(16 * MIB);
    if (!RunTool("mkswap '" + file.Path() + "'")) {
        GTEST_SKIP() << "mkswap is not installed (package util-linux)";
    }
    EXPECT_EQ(OccupantsOf(file.Path()), "it carries a swap area; ");
}

TEST(FindOccupants, APartitionTable) {
    TemporaryFile file(16 * MIB);
    const unsigned char entry[16] = {0, 0, 2, 0, 0x83, 0,  3, 0,
                                     0, 8, 0, 0, 0,    16, 0, 0}; // 4096 sectors from 2048
    WriteAt(file.Path(), 446, std::string(reinterpret_cast<const char *>(entry), sizeof entry));
    WriteAt(file.Path(), 510, "\x55\xaa");
    EXPECT_EQ(OccupantsOf(file.Path()), "it carries a partition table (dos); ");
}

TEST(FindOccupants, AnAttachedAndAMountedLoopDevice) {
    TemporaryFile file(16 * MIB);
    if (!RunTool("mkfs.ext4 -q -F '" + file.Path() + "'")) {
        GTEST_SKIP() << "mkfs.ext4 is not installed (package e2fsprogs)";
    }
    const std::string directory = file.Path() + ".mnt", number = file.Path() + ".loop";
    const bool attached = RunTool("losetup --find --show '" + file.Path() + "' | cut -d/ -f3 > '" + number +
                                  "' 2>&1; test -s '" + number + "'");
    std::ifstream stream(number);
    std::string loop;
    std::getline(stream, loop);
    unlink(number.c_str());
    if (!attached || loop.find("loop") != 0) {
        GTEST_SKIP() << "losetup cannot make a loop device here";
    }
    EXPECT_EQ(OccupantsOf(file.Path()),
              "it is attached to /dev/" + loop + " (in use); it carries an ext4 file system; ");
    EXPECT_EQ(OccupantsOf("/dev/" + loop), "it carries an ext4 file system; ");
    if (RunTool("mkdir '" + directory + "' && mount /dev/" + loop + " '" + directory + "'")) {
        EXPECT_EQ(OccupantsOf("/dev/" + loop),
                  "it is mounted on " + directory + " (in use); it carries an ext4 file system; ");
        EXPECT_EQ(OccupantsOf(file.Path()), "it is attached to /dev/" + loop + ", which is mounted on " +
                                                directory + " (in use); it carries an ext4 file system; ");
        EXPECT_TRUE(RunTool("umount '" + directory + "'"));
    }
    rmdir(directory.c_str());
    EXPECT_TRUE(RunTool("losetup --detach /dev/" + loop));
}

TEST(ListBlockDevices, NamesDevicesAndSaysWhatItCouldNotLearn) {
    for (const auto &row : ListBlockDevices()) {
        EXPECT_EQ(row.path.find("/dev/"), 0u);
        EXPECT_GT(row.info.capacity_bytes, 0u) << row.path;
        EXPECT_EQ(row.path.find("/dev/ram"), std::string::npos);
        EXPECT_TRUE(!row.error.empty() || row.info.lba_size > 0) << row.path;
    }
}

} // namespace
} // namespace rawduck
