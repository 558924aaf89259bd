//! FindOccupants and ListBlockDevices.
#include "target/occupants/occupants.hpp"

#include "common/error.hpp"
#include "target/inspect.hpp"
#include "target/occupants/contents.hpp"
#include "target/occupants/kernel_use.hpp"
#include "target/open_target.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>

namespace rawduck {
namespace {

struct stat StatusOf(const Target &target) {
    struct stat status;
    if (stat(target.path.c_str(), &status) != 0) {
        ThrowOpenError(target.name, "stat", errno);
    }
    return status;
}

std::vector<Occupant> KernelUses(const Target &target, ClaimCheck claim) {
    std::vector<Occupant> occupants;
    for (auto &use : FindKernelUses(target, StatusOf(target), claim)) {
        occupants.push_back({std::move(use), false, "", "", ""});
    }
    return occupants;
}

Occupant Forceable(Content content, std::string identity) {
    return {std::move(content.what), true, std::move(content.kind), std::move(content.uuid),
            std::move(identity)};
}

FileDescriptor OpenContents(const Target &target) {
    FileDescriptor fd = OpenTarget(target, O_RDONLY | O_NONBLOCK);
    // NVMe passthrough writes past the kernel's cache of a
    // block device, which may hold what was there before.
    posix_fadvise(fd.Get(), 0, 0, POSIX_FADV_DONTNEED);
    return fd;
}

//! In the order of the privileges needed, so that a user who may not open the device still learns the most.
DeviceRow Describe(const std::string &sysfs_directory) {
    DeviceRow row;
    std::string name = BaseName(sysfs_directory);
    std::replace(name.begin(), name.end(), '!', '/'); // sysfs's spelling of a subdirectory of /dev
    row.path = "/dev/" + name;
    row.info = InfoFromSysfs(sysfs_directory);
    try {
        Target target = ResolveTarget(row.path);
        row.occupants = KernelUses(target, ClaimCheck::ASK);
        row.info = InspectTarget(target);
        for (Content &content : FindContents(target, OpenContents(target).Get())) {
            row.occupants.push_back(Forceable(std::move(content), ""));
        }
    } catch (const Error &error) {
        row.error = error.what();
    }
    return row;
}

//! Without a medium, a backing file or a configured size there is nothing to list.
bool IsEmpty(const std::string &sysfs_directory) {
    uint64_t sectors = 0;
    return !ReadNumber(sysfs_directory + "/size", sectors) || sectors == 0;
}

} // namespace

std::vector<Occupant> FindOccupants(const Target &target, ClaimCheck claim) {
    if (!HasNode(target.kind)) {
        return {};
    }
    const Target examined = BlockDeviceOf(target);
    std::vector<Occupant> occupants = KernelUses(examined, claim);
    const FileDescriptor fd = OpenContents(examined);
    for (Occupant &occupant : OccupantsIn(examined, fd.Get())) {
        occupants.push_back(std::move(occupant));
    }
    return occupants;
}

std::vector<Occupant> OccupantsIn(const Target &target, int fd) {
    std::vector<Occupant> occupants;
    std::string fingerprint;
    for (Content &content : FindContents(target, fd)) {
        fingerprint = fingerprint.empty() ? Fingerprint(target, fd) : fingerprint;
        std::string identity = content.kind + ":" + fingerprint;
        occupants.push_back(Forceable(std::move(content), std::move(identity)));
    }
    return occupants;
}

std::vector<DeviceRow> ListBlockDevices() {
    std::vector<DeviceRow> rows;
    for (const auto &name : ListDirectory("/sys/block")) {
        const std::string directory = "/sys/block/" + name;
        if (name.compare(0, 3, "ram") == 0 || IsEmpty(directory)) {
            continue;
        }
        rows.push_back(Describe(directory));
        for (const auto &part : ListDirectory(directory)) {
            if (IsPartition(directory + "/" + part)) {
                rows.push_back(Describe(directory + "/" + part));
            }
        }
    }
    return rows;
}

} // namespace rawduck
