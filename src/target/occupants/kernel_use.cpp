#include "target/occupants/kernel_use.hpp"

#include "target/nvme/nvme_node.hpp"
#include "target/occupants/loop_device.hpp"
#include "target/open_target.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/system/sysfs.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sstream>

namespace rawduck {
namespace {

//! A block device whose use stands in the way: the target,
//! a partition of it, or the disk that it is a part of.
struct Relative {
    std::string number;    //!< "8:1"
    std::string directory; //!< in sysfs
    std::string subject;   //!< "it", or "its partition /dev/sda1"
};

std::vector<Relative> RelativesOf(dev_t number) {
    const std::string directory = SysfsDirectory(number);
    std::vector<Relative> relatives = {{DeviceNumberText(number), directory, "it"}};
    if (directory.empty()) {
        return relatives;
    }
    for (const auto &name : ListDirectory(directory)) {
        if (IsPartition(directory + "/" + name)) {
            relatives.push_back({ReadAttribute(directory + "/" + name + "/dev"), directory + "/" + name,
                                 "its partition /dev/" + name});
        }
    }
    const std::string disk = DiskDirectory(directory);
    if (disk != directory) {
        relatives.push_back({ReadAttribute(disk + "/dev"), disk, "its disk /dev/" + BaseName(disk)});
    }
    return relatives;
}

//! The kernel writes space, tab, newline and backslash as three octal digits.
std::string Unescape(const std::string &text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); i++) {
        auto octal = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '7'; };
        if (text[i] == '\\' && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
            plain +=
                static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

struct Mount {
    std::string number;        //!< of the file system's device
    std::string source_number; //!< of the device named as its source: btrfs mounts under a number of its own
    std::string directory;
};

std::vector<Mount> ReadMounts() {
    std::vector<Mount> mounts;
    std::istringstream stream(ReadAttribute("/proc/self/mountinfo"));
    for (std::string line; std::getline(stream, line);) {
        std::istringstream fields(line);
        std::string id, parent, root, word, type, source;
        Mount mount;
        fields >> id >> parent >> mount.number >> root >> mount.directory;
        while (fields >> word && word != "-") { // optional fields
        }
        fields >> type >> source;
        mount.directory = Unescape(mount.directory);
        struct stat status;
        if (stat(Unescape(source).c_str(), &status) == 0 && S_ISBLK(status.st_mode)) {
            mount.source_number = DeviceNumberText(status.st_rdev);
        }
        mounts.push_back(mount);
    }
    return mounts;
}

//! "/home", or "/home and 2 more places"; empty when it is not mounted.
std::string MountPlaces(const std::string &number) {
    std::string first;
    int more = 0;
    for (const auto &mount : ReadMounts()) {
        if (mount.number == number || mount.source_number == number) {
            more += first.empty() ? 0 : 1;
            first = first.empty() ? mount.directory : first;
        }
    }
    return more == 0 ? first : first + " and " + std::to_string(more) + " more places";
}

//! What a path leads to: "it", a relative of it, or empty, when it is something else.
std::string SubjectAt(const std::string &path, const Target &target, const std::vector<Relative> &relatives) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) {
        return "";
    }
    if (IdentityOf(status) == target.identity) {
        return "it";
    }
    for (const auto &relative : relatives) {
        if (S_ISBLK(status.st_mode) && relative.number == DeviceNumberText(status.st_rdev)) {
            return relative.subject;
        }
    }
    return "";
}

//! Swap on the target itself (a swap file, too) or on a relative.
void FindSwap(const Target &target, const std::vector<Relative> &relatives, std::vector<std::string> &uses) {
    std::istringstream stream(ReadAttribute("/proc/swaps"));
    std::string line;
    std::getline(stream, line); // heading
    while (std::getline(stream, line)) {
        const std::string path = Unescape(line.substr(0, line.find_first_of(" \t")));
        const std::string subject = SubjectAt(path, target, relatives);
        if (!subject.empty()) {
            uses.push_back(subject + " is in use as swap");
        }
    }
}

//! Whether the controller at that path, such as /dev/nvme0, leads to one of these: it is the device that the namespace
//! is of, or, where the kernel joins several paths, one of the subsystem's.
bool LeadsThroughController(const std::string &path, const std::vector<Relative> &relatives) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) {
        return false;
    }
    for (const auto &relative : relatives) {
        const std::string owner = DiskDirectory(relative.directory) + "/device";
        const std::string number = DeviceNumberText(status.st_rdev);
        if (ReadAttribute(owner + "/dev") == number) {
            return true;
        }
        for (const auto &name : ListDirectory(owner)) {
            if (IsNvmeControllerName(name) && ReadAttribute(owner + "/" + name + "/dev") == number) {
                return true;
            }
        }
    }
    return false;
}

//! The kernel's NVMe target opens what it hands to other machines like anybody else, not for itself alone.
void FindExports(const Target &target, const std::vector<Relative> &relatives,
                 std::vector<std::string> &uses) {
    const std::string subsystems = "/sys/kernel/config/nvmet/subsystems";
    for (const auto &subsystem : ListDirectory(subsystems)) {
        const std::string passed = subsystems + "/" + subsystem + "/passthru";
        if (ReadAttribute(passed + "/enable") == "1" &&
            LeadsThroughController(ReadAttribute(passed + "/device_path"), relatives)) {
            uses.push_back("its controller is " + subsystem +
                           ", which the kernel's NVMe target hands to other machines");
        }
        for (const auto &number : ListDirectory(subsystems + "/" + subsystem + "/namespaces")) {
            const std::string directory = subsystems + "/" + subsystem + "/namespaces/" + number;
            const std::string subject =
                ReadAttribute(directory + "/enable") == "1"
                    ? SubjectAt(ReadAttribute(directory + "/device_path"), target, relatives)
                    : "";
            if (!subject.empty()) {
                uses.push_back(subject + " is namespace " + number + " of " + subsystem +
                               ", which the kernel's NVMe target hands to other machines");
            }
        }
    }
}

void FindHolders(const Relative &relative, std::vector<std::string> &uses) {
    for (const auto &holder : ListDirectory(relative.directory + "/holders")) {
        std::string mapped = ReadAttribute("/sys/block/" + holder + "/dm/name");
        uses.push_back(relative.subject + " is part of /dev/" + holder +
                       (mapped.empty() ? "" : " (" + mapped + ")"));
    }
}

//! Mounts in another namespace show nowhere here, but the kernel grants exclusive use to one only.
bool IsHeldExclusively(const Target &target) {
    int error_number = 0;
    TryOpenTarget(target, O_RDONLY | O_EXCL | O_NONBLOCK, error_number);
    return error_number == EBUSY;
}

std::string LoopClause(const std::string &name) {
    const std::string places = MountPlaces(ReadAttribute("/sys/block/" + name + "/dev"));
    return "it is attached to /dev/" + name + (places.empty() ? "" : ", which is mounted on " + places);
}

//! Somebody reads from it, through whatever node.
bool IsRead(const std::string &name) {
    struct stat status;
    return stat(("/sys/block/" + name + "/dev").c_str(), &status) == 0 &&
           IsLocked(status.st_dev, status.st_ino, {}, false);
}

} // namespace

std::string UseOfLoop(const std::string &name) {
    const std::string path = "/dev/" + name;
    struct stat status;
    const bool used = IsRead(name) || (stat(path.c_str(), &status) == 0 && S_ISBLK(status.st_mode) &&
                                       IsHeldExclusively(ResolveTarget(path)));
    return used ? LoopClause(name) + ", and in use there" : "";
}

std::vector<std::string> FindDirectUses(const Target &target, const struct stat &status) {
    std::vector<std::string> uses;
    std::vector<Relative> relatives;
    if (target.kind == TargetKind::BLOCK_DEVICE) {
        relatives = RelativesOf(status.st_rdev);
    }
    for (const auto &relative : relatives) {
        const std::string places = MountPlaces(relative.number);
        if (!places.empty()) {
            uses.push_back(relative.subject + " is mounted on " + places);
        }
        FindHolders(relative, uses);
    }
    FindSwap(target, relatives, uses);
    FindExports(target, relatives, uses);
    return uses;
}

std::vector<std::string> FindKernelUses(const Target &target, const struct stat &status, ClaimCheck claim) {
    std::vector<std::string> uses = FindDirectUses(target, status);
    for (const LoopDevice &loop : LoopsOver(target.identity)) {
        uses.push_back(LoopClause(loop.name));
    }
    if (uses.empty() && claim == ClaimCheck::ASK && target.kind == TargetKind::BLOCK_DEVICE &&
        IsHeldExclusively(target)) {
        uses.push_back(
            "the kernel holds it in exclusive use (a mount in another namespace, RAID, or a file system "
            "with several devices)");
    }
    return uses;
}

} // namespace rawduck
