#include "target/occupants/contents.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/little_endian.hpp"
#include "common/text/utf8.hpp"
#include "common/units.hpp"
#include "common/uuid.hpp"
#include "target/inspect.hpp"
#include "target/open_target.hpp"
#include "target/system/lock_holder.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <array>
#include <blkid/blkid.h>
#include <cerrno>
#include <cstdio>
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

// Where a superblock (TreeSuperblock) and a member's header (MemberHeader) say what they are of. The label: of format 2.
constexpr size_t VERSION_OFFSET = 12, VOLUME_UUID_OFFSET = 40, LABEL_OFFSET = 168, LABEL_BYTES = 64;
constexpr size_t STRIPE_UUID_OFFSET = 16, MEMBER_INDEX_OFFSET = 32, MEMBER_COUNT_OFFSET = 36;
constexpr size_t MEMBERS_OFFSET = 128, MEMBER_NAME_BYTES = 232, MEMBERS_MAX = 16;
constexpr size_t MEMBER_PATH_OFFSET = 72, MEMBER_PATH_BYTES = 160;
constexpr size_t IDENTIFYING_BYTES = MEMBERS_OFFSET + MEMBERS_MAX * MEMBER_NAME_BYTES;

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

//! What is examined where no signature is looked for: as many bytes, or all, at the beginning and at the end.
std::array<ByteRange, 2> EndsOf(const ByteRange &range) {
    const uint64_t length = std::min<uint64_t>(range.length, MIB);
    return {ByteRange{range.start, length}, ByteRange{range.start + range.length - length, length}};
}

bool HoldsOnlyZeros(const Target &target, int fd, uint64_t size) {
    const std::array<ByteRange, 2> ends = EndsOf({0, size});
    return std::all_of(ends.begin(), ends.end(), [&](const ByteRange &end) {
        return ReadBytes(target, fd, end.start, end.length).find_first_not_of('\0') == std::string::npos;
    });
}

//! Goes on from `checksum`. What cannot be read differs from all that can: to format the target is what may cure that.
uint32_t ChecksumOf(uint32_t checksum, const Target &target, int fd, const ByteRange &range) {
    constexpr uint64_t PIECE_BYTES = 4 * KIB;
    for (uint64_t done = 0; done < range.length; done += PIECE_BYTES) {
        std::string piece = "unreadable";
        try {
            piece = ReadBytes(target, fd, range.start + done, std::min(PIECE_BYTES, range.length - done));
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::IO) {
                throw;
            }
        }
        checksum = Crc32c(checksum, piece.data(), piece.size());
    }
    return checksum;
}

//! Labels come from the device, whoever wrote it, and go to a terminal and into DuckDB.
std::string Harmless(std::string text) {
    const unsigned char end = IsUtf8(text) ? 0xFF : 0x7E;
    std::replace_if(
        text.begin(), text.end(), [&](unsigned char c) { return c < 0x20 || c == 0x7F || c > end; }, '?');
    return text;
}

std::string WithLabel(const std::string &what, const std::string &label) {
    return label.empty() ? what : what + " (label " + label + ")";
}

std::string ProbeValue(blkid_probe probe, const char *name) {
    const char *value = nullptr;
    size_t length = 0;
    if (blkid_probe_lookup_value(probe, name, &value, &length) != 0) {
        return "";
    }
    return Harmless(value);
}

std::string WithArticle(const std::string &noun) {
    return (std::strchr("aeioux", noun[0]) ? "an " : "a ") + noun;
}

//! In words what libblkid calls the type and usage of a superblock.
Content DescribeSuperblock(blkid_probe probe, const std::string &type) {
    const std::string usage = ProbeValue(probe, "USAGE");
    Content content;
    content.uuid = ProbeValue(probe, "UUID");
    if (usage == "filesystem") {
        content.kind = "file system";
        content.what = "it carries " + WithArticle(type) + " file system";
    } else if (type == "swap") {
        content.kind = "swap";
        content.what = "it carries a swap area";
    } else if (usage == "raid") {
        content.kind = "raid";
        content.what = "it is a member of a RAID or volume group (" + type + ")";
    } else if (usage == "crypto") {
        content.kind = "encrypted";
        content.what = "it carries encrypted data (" + type + ")";
    } else {
        content.kind = "signature";
        content.what = "it carries " + WithArticle(type) + " signature";
    }
    content.what = WithLabel(content.what, ProbeValue(probe, "LABEL"));
    return content;
}

void FindSignatures(const Target &target, int fd, std::vector<Content> &contents) {
    std::unique_ptr<std::remove_pointer_t<blkid_probe>, void (*)(blkid_probe)> probe(blkid_new_probe(),
                                                                                     blkid_free_probe);
    if (!probe || blkid_probe_set_device(probe.get(), fd, 0, 0) != 0 ||
        blkid_probe_enable_superblocks(probe.get(), 1) != 0 ||
        blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_LABEL | BLKID_SUBLKS_UUID |
                                                           BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE) != 0 ||
        blkid_probe_enable_partitions(probe.get(), 1) != 0) {
        throw Error(ErrorCode::IO,
                    target.name + ": libblkid cannot examine what it holds: " + ErrnoText(errno));
    }
    errno = 0;
    const int result = blkid_do_safeprobe(probe.get());
    if (result == -2) {
        contents.push_back(
            {"signature", "it carries signatures that contradict each other (wipefs lists them)", ""});
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
        contents.push_back({"partition table", "it carries a partition table (" + table + ")",
                            ProbeValue(probe.get(), "PTUUID")});
    }
}

struct Partition {
    std::string name;
    ByteRange range;
};

std::vector<Partition> PartitionsOf(int fd) {
    std::vector<Partition> partitions;
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISBLK(status.st_mode)) {
        return partitions;
    }
    const std::string directory = SysfsDirectory(status.st_rdev);
    for (const auto &name : ListDirectory(directory)) {
        if (IsPartition(directory + "/" + name)) {
            uint64_t start = 0, sectors = 0;
            ReadNumber(directory + "/" + name + "/start", start);
            ReadNumber(directory + "/" + name + "/size", sectors);
            partitions.push_back({name, {start * SYSFS_SECTOR_BYTES, sectors * SYSFS_SECTOR_BYTES}});
        }
    }
    return partitions;
}

void FindPartitions(int fd, std::vector<Content> &contents) {
    std::string names;
    for (const Partition &partition : PartitionsOf(fd)) {
        names += (names.empty() ? "" : ", ") + partition.name;
    }
    if (!names.empty()) {
        contents.push_back({"partitions", "it has partitions (" + names + ")", ""});
    }
}

//! The beginning of the first or of the last allocation unit, whichever starts so. Empty: neither does.
std::string UnitWithMagic(const Target &target, int fd, std::string_view magic) {
    const uint64_t size = SizeOf(target, fd);
    const uint64_t last_unit = size >= 2 * ALLOCATION_UNIT_BYTES
                                   ? AlignDown(size, ALLOCATION_UNIT_BYTES) - ALLOCATION_UNIT_BYTES
                                   : 0;
    for (const uint64_t offset : {uint64_t(0), last_unit}) {
        std::string bytes = ReadBytes(target, fd, offset, IDENTIFYING_BYTES);
        if (bytes.compare(0, magic.size(), magic) == 0) {
            bytes.resize(IDENTIFYING_BYTES);
            return bytes;
        }
    }
    return "";
}

std::string UuidAt(const std::string &unit, size_t offset) {
    Uuid uuid;
    std::memcpy(uuid.data(), unit.data() + offset, uuid.size());
    return UuidText(uuid);
}

std::string LabelOf(const std::string &superblock) {
    const auto *version = reinterpret_cast<const uint8_t *>(superblock.data()) + VERSION_OFFSET;
    const bool is_known = ReadLittleEndian(version, sizeof(uint32_t)) == 2;
    return is_known ? Harmless(superblock.substr(LABEL_OFFSET, LABEL_BYTES).c_str()) : "";
}

//! Formatting one of them takes the whole volume, so all are named: where they were found when it was written to last.
std::string MemberText(const std::string &header) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(header.data());
    const uint64_t version = ReadLittleEndian(bytes + VERSION_OFFSET, sizeof(uint32_t));
    const uint64_t index = ReadLittleEndian(bytes + MEMBER_INDEX_OFFSET, sizeof(uint32_t));
    const uint64_t count = ReadLittleEndian(bytes + MEMBER_COUNT_OFFSET, sizeof(uint32_t));
    if (version != 1 || count > MEMBERS_MAX || index >= count) {
        return "it is a member of a rawduck volume on several targets, which is lost with it";
    }
    std::string paths;
    for (uint64_t i = 0; i < count; i++) {
        const size_t at = MEMBERS_OFFSET + i * MEMBER_NAME_BYTES + MEMBER_PATH_OFFSET;
        const std::string path = Harmless(header.substr(at, MEMBER_PATH_BYTES).c_str());
        paths += (i == 0 ? "" : ", ") + (path.empty() ? "member " + std::to_string(i) : path);
    }
    return "it is member " + std::to_string(index) + " of a rawduck volume on " + std::to_string(count) +
           " targets (" + paths + "), which is lost with it";
}

void FindVolume(const Target &target, int fd, std::vector<Content> &contents) {
    const std::string header = UnitWithMagic(target, fd, MEMBER_MAGIC);
    if (!header.empty()) {
        contents.push_back({"member", MemberText(header), UuidAt(header, STRIPE_UUID_OFFSET)});
    }
    const std::string superblock = UnitWithMagic(target, fd, VOLUME_MAGIC);
    if (!superblock.empty()) {
        contents.push_back({"volume", WithLabel("it is a rawduck volume", LabelOf(superblock)),
                            UuidAt(superblock, VOLUME_UUID_OFFSET)});
    }
}

//! What else tells a target from another one, or from an earlier state of it.
std::string Circumstances(const Target &target, int fd, uint64_t size) {
    std::string text = target.identity + " " + std::to_string(size);
    struct stat status;
    if (fstat(fd, &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    if (S_ISBLK(status.st_mode)) {
        text += " " + InfoFromSysfs(SysfsDirectory(status.st_rdev)).serial;
    } else if (target.kind == TargetKind::REGULAR_FILE) {
        text += " " + std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
    }
    return text;
}

} // namespace

bool HoldsVolume(const Target &target, int fd) {
    return !UnitWithMagic(target, fd, VOLUME_MAGIC).empty() ||
           !UnitWithMagic(target, fd, MEMBER_MAGIC).empty();
}

std::string Fingerprint(const Target &target, int fd) {
    const uint64_t size = SizeOf(target, fd);
    std::vector<Partition> ranges = PartitionsOf(fd);
    ranges.push_back({"", {0, size}});
    std::array<uint32_t, 3> checksums = {};
    for (const Partition &examined : ranges) {
        const std::array<ByteRange, 2> ends = EndsOf(examined.range);
        for (size_t i = 0; i < ends.size(); i++) {
            checksums[i] = ChecksumOf(checksums[i], target, fd, ends[i]);
        }
    }
    const std::string rest = Circumstances(target, fd, size);
    checksums[2] = Crc32c(0, rest.data(), rest.size());
    char text[3 * 8 + 1];
    std::snprintf(text, sizeof(text), "%08x%08x%08x", checksums[0], checksums[1], checksums[2]);
    return text;
}

std::vector<Content> FindContents(const Target &target, int fd) {
    std::vector<Content> contents;
    const uint64_t size = SizeOf(target, fd);
    if (size == 0) {
        return contents;
    }
    const bool is_file = target.kind == TargetKind::REGULAR_FILE;
    FindVolume(target, fd, contents);
    if (ReadBytes(target, fd, DATABASE_MAGIC_OFFSET, DATABASE_MAGIC.size()) == DATABASE_MAGIC) {
        contents.push_back(
            {"database", is_file ? "it is a DuckDB database file" : "it carries a DuckDB database", ""});
    }
    FindSignatures(target, fd, contents);
    FindPartitions(fd, contents);
    if (is_file && contents.empty() && !HoldsOnlyZeros(target, fd, size)) {
        contents.push_back(
            {"file",
             "it is a non-empty file of " + std::to_string(size) + " bytes that is not a rawduck volume",
             ""});
    }
    return contents;
}

} // namespace rawduck
