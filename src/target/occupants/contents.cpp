#include "target/occupants/contents.hpp"

#include "common/error.hpp"
#include "common/units.hpp"
#include "target/open_target.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <blkid/blkid.h>
#include <cerrno>
#include <cstring>
#include <linux/fs.h>
#include <memory>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

namespace rawduck {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view VOLUME_MAGIC =
    "RAWDUCK\0"sv; // at byte 0, and in the last allocation unit of the target
constexpr std::string_view MEMBER_MAGIC = "RAWDUCKM"sv; // at the same two places
constexpr std::string_view DATABASE_MAGIC = "DUCK"sv;   // of a DuckDB database file
constexpr uint64_t DATABASE_MAGIC_OFFSET = 8;

uint64_t SizeOf(const Target &target, int fd) {
    struct stat status;
    uint64_t size = 0;
    if (fstat(fd, &status) != 0 || (S_ISBLK(status.st_mode) && ioctl(fd, BLKGETSIZE64, &size) != 0)) {
        ThrowOpenError(target.name, "ask for its size", errno);
    }
    return S_ISBLK(status.st_mode) ? size : static_cast<uint64_t>(status.st_size);
}

//! Fewer bytes only at the end.
std::string ReadBytes(const Target &target, int fd, uint64_t offset, uint64_t length) {
    std::string bytes(length, '\0');
    uint64_t done = 0;
    while (done < length) {
        ssize_t count = pread(fd, &bytes[done], length - done, static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            throw Error(ErrorCode::IO, target.name + ": cannot read what it holds at byte offset " +
                                           std::to_string(offset) + ": " + ErrnoText(errno));
        }
        if (count == 0) {
            break;
        }
        done += static_cast<uint64_t>(count);
    }
    bytes.resize(done);
    return bytes;
}

bool HoldsOnlyZeros(const Target &target, int fd, uint64_t size) {
    const uint64_t length = std::min<uint64_t>(size, MIB);
    for (uint64_t offset : {uint64_t(0), size - length}) {
        const std::string bytes = ReadBytes(target, fd, offset, length);
        if (bytes.find_first_not_of('\0') != std::string::npos) {
            return false;
        }
    }
    return true;
}

std::string ProbeValue(blkid_probe probe, const char *name) {
    const char *value = nullptr;
    size_t length = 0;
    if (blkid_probe_lookup_value(probe, name, &value, &length) != 0) {
        return "";
    }
    // Labels come from the device, whoever wrote it, and go to a terminal.
    std::string text(value);
    std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    return text;
}

std::string WithArticle(const std::string &noun) {
    return (std::strchr("aeioux", noun[0]) ? "an " : "a ") + noun;
}

//! In words what libblkid calls the type and usage of a superblock.
std::string DescribeSuperblock(blkid_probe probe, const std::string &type) {
    const std::string usage = ProbeValue(probe, "USAGE");
    const std::string label = ProbeValue(probe, "LABEL");
    std::string what;
    if (usage == "filesystem") {
        what = "it carries " + WithArticle(type) + " file system";
    } else if (type == "swap") {
        what = "it carries a swap area";
    } else if (usage == "raid") {
        what = "it is a member of a RAID or volume group (" + type + ")";
    } else if (usage == "crypto") {
        what = "it carries encrypted data (" + type + ")";
    } else {
        what = "it carries " + WithArticle(type) + " signature";
    }
    return label.empty() ? what : what + " (label " + label + ")";
}

void FindSignatures(const Target &target, int fd, std::vector<std::string> &contents) {
    std::unique_ptr<std::remove_pointer_t<blkid_probe>, void (*)(blkid_probe)> probe(blkid_new_probe(),
                                                                                     blkid_free_probe);
    if (!probe || blkid_probe_set_device(probe.get(), fd, 0, 0) != 0 ||
        blkid_probe_enable_superblocks(probe.get(), 1) != 0 ||
        blkid_probe_set_superblocks_flags(probe.get(),
                                          BLKID_SUBLKS_LABEL | BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE) != 0 ||
        blkid_probe_enable_partitions(probe.get(), 1) != 0) {
        throw Error(ErrorCode::IO,
                    target.name + ": libblkid cannot examine what it holds: " + ErrnoText(errno));
    }
    errno = 0;
    const int result = blkid_do_safeprobe(probe.get());
    if (result == -2) {
        contents.push_back("it carries signatures that contradict each other (wipefs lists them)");
    } else if (result < 0) {
        throw Error(ErrorCode::IO,
                    target.name + ": libblkid failed to examine what it holds: " + ErrnoText(errno));
    }
    const std::string type = ProbeValue(probe.get(), "TYPE");
    if (!type.empty()) {
        contents.push_back(DescribeSuperblock(probe.get(), type));
    }
    const std::string table = ProbeValue(probe.get(), "PTTYPE");
    if (!table.empty()) {
        contents.push_back("it carries a partition table (" + table + ")");
    }
}

void FindPartitions(int fd, std::vector<std::string> &contents) {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISBLK(status.st_mode)) {
        return;
    }
    const std::string directory = SysfsDirectory(status.st_rdev);
    std::string names;
    for (const auto &name : ListDirectory(directory)) {
        if (IsPartition(directory + "/" + name)) {
            names += (names.empty() ? "" : ", ") + name;
        }
    }
    if (!names.empty()) {
        contents.push_back("it has partitions (" + names + ")");
    }
}

//! In its first or in its last allocation unit.
bool HoldsMagic(const Target &target, int fd, std::string_view magic) {
    const uint64_t size = SizeOf(target, fd);
    const uint64_t last_unit = size >= 2 * ALLOCATION_UNIT_BYTES
                                   ? AlignDown(size, ALLOCATION_UNIT_BYTES) - ALLOCATION_UNIT_BYTES
                                   : 0;
    return ReadBytes(target, fd, 0, magic.size()) == magic ||
           ReadBytes(target, fd, last_unit, magic.size()) == magic;
}

} // namespace

bool HoldsVolume(const Target &target, int fd) {
    return HoldsMagic(target, fd, VOLUME_MAGIC) || HoldsMagic(target, fd, MEMBER_MAGIC);
}

std::vector<std::string> FindContents(const Target &target, int fd) {
    std::vector<std::string> contents;
    const uint64_t size = SizeOf(target, fd);
    if (size == 0) {
        return contents;
    }
    const bool is_file = target.kind == TargetKind::REGULAR_FILE;
    if (HoldsMagic(target, fd, MEMBER_MAGIC)) {
        contents.push_back("it is a member of a rawduck volume on several targets");
    }
    if (HoldsMagic(target, fd, VOLUME_MAGIC)) {
        contents.push_back("it is a rawduck volume");
    }
    if (ReadBytes(target, fd, DATABASE_MAGIC_OFFSET, DATABASE_MAGIC.size()) == DATABASE_MAGIC) {
        contents.push_back(is_file ? "it is a DuckDB database file" : "it carries a DuckDB database");
    }
    FindSignatures(target, fd, contents);
    FindPartitions(fd, contents);
    if (is_file && contents.empty() && !HoldsOnlyZeros(target, fd, size)) {
        contents.push_back("it is a non-empty file of " + std::to_string(size) +
                           " bytes that is not a rawduck volume");
    }
    return contents;
}

} // namespace rawduck
