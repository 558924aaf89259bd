#include "io/engine/vfio/vfio_access.hpp"

#include "common/error.hpp"
#include "target/system/lock_holder.hpp"
#include "target/system/open_error.hpp"
#include "target/system/sysfs.hpp"

#include <cerrno>
#include <chrono>
#include <climits>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace rawduck {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char *DRIVER = "vfio-pci";
//! Of a process that was killed: the kernel resets the function before it lets go of it, and somebody may be
//! changing drivers at the moment.
constexpr milliseconds ENDING_TIMEOUT{5000}, POLL_INTERVAL{20};

std::string DirectoryOf(const std::string &address) {
    return "/sys/bus/pci/devices/" + address;
}

//! The last component of where a link leads; empty when there is none.
std::string LinkName(const std::string &path) {
    char buffer[PATH_MAX];
    const ssize_t length = readlink(path.c_str(), buffer, sizeof buffer);
    return length <= 0 ? "" : BaseName(std::string(buffer, static_cast<size_t>(length)));
}

} // namespace

std::string VfioGroup(const std::string &address, const std::string &name) {
    const std::string directory = DirectoryOf(address);
    if (access(directory.c_str(), F_OK) != 0) {
        throw Error(ErrorCode::NOT_FOUND,
                    name + ": there is no PCI function " + address + "; `rawduck vfio list` shows which are");
    }
    const std::string driver = LinkName(directory + "/driver"), group = LinkName(directory + "/iommu_group");
    if (group.empty()) {
        throw Error(ErrorCode::UNSUPPORTED,
                    name + ": a driver in the process needs an IOMMU, and the kernel has none for " +
                        address +
                        "; enable it in the firmware and with the kernel parameter intel_iommu=on (on AMD it "
                        "is on by default), or use the kernel's driver: rawduck vfio unbind " +
                        address);
    }
    if (driver != DRIVER) {
        throw Error(ErrorCode::UNSUPPORTED, name + ": the PCI function " + address + " is " +
                                                (driver.empty() ? std::string("without a driver")
                                                                : "driven by the kernel (" + driver + ")") +
                                                "; `rawduck vfio bind " + address + "` hands it to vfio-pci");
    }
    return group;
}

int OpenVfioGroup(const std::string &path, const std::string &address, const std::string &name) {
    const auto start = steady_clock::now();
    for (;;) {
        const int fd = OpenAboveStreams(path.c_str(), O_RDWR);
        if (fd >= 0) {
            return fd;
        }
        const int error_number = errno;
        struct stat status;
        if (error_number != EBUSY || stat(path.c_str(), &status) != 0) {
            ThrowVfioOpenError(name, address, path, error_number);
        }
        const LockHolder holder = FindOpener(status.st_rdev);
        if (holder.process != 0 || steady_clock::now() - start > ENDING_TIMEOUT) {
            throw Error(ErrorCode::LOCKED,
                        name + ": " + HolderName(holder) + " drives this controller (" + path +
                            "), and one process at a time can, also for reading; close it there first");
        }
        std::this_thread::sleep_for(POLL_INTERVAL);
    }
}

void ThrowVfioOpenError(const std::string &name, const std::string &address, const std::string &path,
                        int error_number) {
    const std::string tried = name + ": cannot open " + path + ": " + ErrnoText(error_number);
    if (error_number == ENOENT || error_number == ENODEV) {
        throw Error(ErrorCode::UNSUPPORTED, tried +
                                                "; load VFIO (modprobe vfio-pci), and in a container give "
                                                "it /dev/vfio");
    }
    if (error_number == EACCES || error_number == EPERM) {
        throw Error(ErrorCode::PERMISSION,
                    tried + "; run as root, or give the group to your user (chown $USER " + path +
                        "; `rawduck vfio bind " + address + " --user NAME` does that)");
    }
    ThrowOpenError(name, "open " + path, error_number);
}

void ThrowNotViable(const std::string &address, const std::string &name) {
    std::string others;
    for (const std::string &other : ListDirectory(DirectoryOf(address) + "/iommu_group/devices")) {
        const std::string driver = LinkName(DirectoryOf(other) + "/driver");
        if (other != address && driver != DRIVER && !driver.empty()) {
            others += (others.empty() ? "" : ", ") + other + " (" + driver + ")";
        }
    }
    throw Error(
        ErrorCode::UNSUPPORTED,
        name + ": the IOMMU cannot keep " + address + " apart from functions that other drivers have: " +
            (others.empty() ? "the group is not viable" : others) +
            "; move the drive to another slot, or use the kernel's driver: rawduck vfio unbind " + address);
}

void ThrowNoTranslation(const std::string &address, const std::string &name, int error_number) {
    const std::string tried = name + ": the IOMMU does not take " + address + ": " + ErrnoText(error_number);
    if (error_number == EPERM) {
        throw Error(ErrorCode::UNSUPPORTED,
                    tried + "; it does not check interrupts (no interrupt remapping): enable that in the "
                            "firmware, or, where you trust the device, the parameter "
                            "allow_unsafe_interrupts=1 of the module vfio_iommu_type1");
    }
    throw Error(ErrorCode::IO, tried + "; look into the kernel log (dmesg)");
}

} // namespace rawduck
