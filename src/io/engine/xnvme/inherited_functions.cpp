#include "io/engine/xnvme/inherited_functions.hpp"

#include "target/system/locked_descriptors.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! "/dev/vfio/vfio", "/dev/vfio/7", "anon_inode:[vfio-device]"
bool IsOfVfio(const std::string &name) {
    return name.find("/dev/vfio/") != std::string::npos || name.find("[vfio-device]") != std::string::npos;
}

bool IsOfVfio(int fd) {
    char buffer[PATH_MAX];
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t length = readlink(link.c_str(), buffer, sizeof buffer);
    return length > 0 && IsOfVfio(std::string(buffer, static_cast<size_t>(length)));
}

//! Registers of the functions. The kernel's driver for them refuses to give them to a child, but a mapping that is
//! there keeps the function open.
void KeepMappings() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin = 0, end = 0;
        if (IsOfVfio(line) && std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2) {
            madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTFORK);
        }
    }
}

} // namespace

std::vector<int> InheritedFunctions::Descriptors() {
    std::vector<int> descriptors;
    for (const std::string &name : ListDirectory("/proc/self/fd")) {
        const int fd = std::atoi(name.c_str());
        if (IsOfVfio(fd)) {
            descriptors.push_back(fd);
        }
    }
    return descriptors;
}

void InheritedFunctions::Keep(const std::vector<int> &before) {
    for (const int fd : Descriptors()) {
        if (std::find(before.begin(), before.end(), fd) == before.end()) {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
            RegisterLocked(fd);
            descriptors_.push_back(fd);
        }
    }
    KeepMappings();
}

void InheritedFunctions::Release() {
    for (const int fd : descriptors_) {
        UnregisterLocked(fd);
    }
    released_ = std::move(descriptors_);
    descriptors_.clear();
}

void InheritedFunctions::KeepTheRest() {
    for (const int fd : released_) {
        if (IsOfVfio(fd)) {
            RegisterLocked(fd);
            descriptors_.push_back(fd);
        }
    }
    released_.clear();
}

} // namespace rawduck
