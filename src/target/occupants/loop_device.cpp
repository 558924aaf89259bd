#include "target/occupants/loop_device.hpp"

#include "common/error.hpp"
#include "target/open_target.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

namespace rawduck {
namespace {

constexpr const char *BLOCK = "block:"; // see IdentityOf

FileDescriptor OpenDevice(const std::string &name, dev_t number) {
    FileDescriptor fd(OpenAboveStreams(("/dev/" + name).c_str(), O_RDONLY | O_NONBLOCK),
                      FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
    if (!fd.IsOpen() && IsWantOfDescriptors(errno)) {
        ThrowOpenError("/dev/" + name, "open it to ask what it lies over", errno);
    }
    struct stat status;
    const bool right =
        fd.IsOpen() && fstat(fd.Get(), &status) == 0 && S_ISBLK(status.st_mode) && status.st_rdev == number;
    return right ? std::move(fd) : FileDescriptor();
}

//! Whoever may not open the device has only the path.
bool AskPath(const std::string &path, Backing &backing) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) {
        return false;
    }
    backing.number = S_ISBLK(status.st_mode) ? status.st_rdev : 0;
    backing.file_system = status.st_dev;
    backing.inode = status.st_ino;
    backing.identity = IdentityOf(status);
    return true;
}

bool AskDevice(int fd, Backing &backing) {
    loop_info64 info = {};
    if (ioctl(fd, LOOP_GET_STATUS64, &info) != 0) {
        return false;
    }
    // Of a file, that is 0, and in older kernels the number of its file system once more.
    const bool is_block = info.lo_rdevice != 0 && info.lo_rdevice != info.lo_device;
    backing.number = is_block ? info.lo_rdevice : 0;
    backing.file_system = info.lo_device;
    backing.inode = info.lo_inode;
    backing.identity = is_block
                           ? BLOCK + DeviceNumberText(backing.number)
                           : "file:" + std::to_string(info.lo_device) + ":" + std::to_string(info.lo_inode);
    return true;
}

std::string FindName(const Backing &backing, const std::string &known_path) {
    const std::string own = "/dev/" + BaseName(SysfsDirectory(backing.number));
    for (const std::string &path : {known_path, own}) {
        struct stat status;
        if (stat(path.c_str(), &status) == 0 && IdentityOf(status) == backing.identity) {
            return path;
        }
    }
    return "";
}

struct Part {
    std::string number; //!< "7:0"
    uint64_t start = 0;
};

//! A block device and its partitions.
std::vector<Part> PartsOf(const std::string &directory, const std::string &number) {
    std::vector<Part> parts = {{number, 0}};
    for (const auto &name : ListDirectory(directory)) {
        uint64_t first_sector = 0;
        if (IsPartition(directory + "/" + name) &&
            ReadNumber(directory + "/" + name + "/start", first_sector)) {
            parts.push_back(
                {ReadAttribute(directory + "/" + name + "/dev"), first_sector * SYSFS_SECTOR_BYTES});
        }
    }
    return parts;
}

struct FoundLoop {
    std::string name;
    Backing backing;
};

std::vector<FoundLoop> AllLoops() {
    std::vector<FoundLoop> loops;
    for (const auto &name : ListDirectory("/sys/block")) {
        if (ReadAttribute("/sys/block/" + name + "/loop/backing_file").empty()) {
            continue;
        }
        const dev_t number = DeviceNumber(ReadAttribute("/sys/block/" + name + "/dev"));
        if (const auto backing = BackingOf(number, -1)) {
            loops.push_back({name, *backing});
        }
    }
    return loops;
}

void AddLoopsOver(const std::string &identity, uint64_t start, const std::vector<FoundLoop> &all,
                  bool directly, std::vector<LoopDevice> &found) {
    for (const FoundLoop &loop : all) {
        const bool known = std::any_of(found.begin(), found.end(),
                                       [&](const LoopDevice &other) { return other.name == loop.name; });
        if (loop.backing.identity != identity || known) {
            continue;
        }
        const ByteRange range = {start + loop.backing.range.start, loop.backing.range.length};
        found.push_back({loop.name, range, directly});
        const std::string directory = "/sys/block/" + loop.name;
        for (const Part &part : PartsOf(directory, ReadAttribute(directory + "/dev"))) {
            AddLoopsOver(BLOCK + part.number, range.start + part.start, all, false, found);
        }
    }
}

} // namespace

std::optional<Backing> BackingOf(dev_t number, int fd) {
    const std::string directory = SysfsDirectory(number), disk = DiskDirectory(directory);
    const std::string path = ReadAttribute(disk + "/loop/backing_file");
    if (directory.empty() || path.empty()) {
        return std::nullopt;
    }
    const FileDescriptor own = fd < 0 ? OpenDevice(BaseName(directory), number) : FileDescriptor();
    Backing backing;
    if (!AskDevice(fd < 0 ? own.Get() : fd, backing) && !AskPath(path, backing)) {
        return std::nullopt;
    }
    backing.path = FindName(backing, path);
    uint64_t offset_bytes = 0, first_sector = 0, sectors = 0; // a disk has no first sector
    ReadNumber(disk + "/loop/offset", offset_bytes);
    ReadNumber(directory + "/start", first_sector);
    ReadNumber(directory + "/size", sectors);
    backing.range = {offset_bytes + first_sector * SYSFS_SECTOR_BYTES, sectors * SYSFS_SECTOR_BYTES};
    return backing;
}

void RequireNoPageCache(const std::string &target_name, dev_t number, const Backing &below) {
    const std::string disk = DiskDirectory(SysfsDirectory(number));
    if (below.number == 0 || ReadAttribute(disk + "/loop/dio") != "0") {
        return;
    }
    const std::string upper = "/dev/" + BaseName(disk);
    throw Error(
        ErrorCode::UNSUPPORTED,
        target_name + ": " + upper + " lies over /dev/" + BaseName(SysfsDirectory(below.number)) +
            " and reads it through the page cache, where it may find what was there before somebody else "
            "wrote; give it direct I/O (losetup --direct-io=on " +
            upper + "), or use what lies below");
}

std::vector<LoopDevice> LoopsOver(const std::string &identity) {
    const std::vector<FoundLoop> all = AllLoops();
    std::vector<LoopDevice> found;
    if (identity.rfind(BLOCK, 0) != 0) {
        AddLoopsOver(identity, 0, all, true, found);
        return found;
    }
    const std::string number = identity.substr(std::string(BLOCK).size());
    for (const Part &part : PartsOf(SysfsDirectory(DeviceNumber(number)), number)) {
        AddLoopsOver(BLOCK + part.number, part.start, all, true, found);
    }
    return found;
}

} // namespace rawduck
