#include "device/posix_lock.hpp"

#include "common/error.hpp"

#include <cerrno>
#include <fstream>
#include <mutex>
#include <sstream>
#include <unistd.h>
#include <vector>

namespace rawduck {
namespace {

//! Descriptors that could not be closed yet. Never destroyed: files are closed when the process ends, too.
struct KeptDescriptors {
    std::mutex mutex;
    std::vector<int> descriptors;
};

KeptDescriptors &Kept() {
    static auto *kept = new KeptDescriptors;
    return *kept;
}

bool MustStayOpen(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && HoldsPosixLock(status);
}

} // namespace

bool HoldsPosixLock(const struct stat &status) {
    // "1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF". Only the inode of the last part is compared: the
    // device is that of the file system below where one is stacked on another, and a false alarm needs an
    // equal inode number.
    const std::string process = std::to_string(getpid()), inode = ":" + std::to_string(status.st_ino);
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
        std::istringstream fields(line);
        std::string number, kind, advisory, mode, holder, file;
        fields >> number >> kind >> advisory >> mode >> holder >> file;
        if (kind == "POSIX" && holder == process && file.size() > inode.size() &&
            file.compare(file.size() - inode.size(), inode.size(), inode) == 0) {
            return true;
        }
    }
    return false;
}

void CheckNoPosixLock(const std::string &path) {
    struct stat status;
    if (stat(path.c_str(), &status) == 0 && HoldsPosixLock(status)) {
        throw Error(ErrorCode::LOCKED,
                    path + ": this process has it open through DuckDB's own file system, whose lock "
                           "would be lost if it were opened a second time; DETACH it there first");
    }
}

void CloseKeepingPosixLocks(int fd) {
    const int error_number = errno;
    KeptDescriptors &kept = Kept();
    std::lock_guard<std::mutex> guard(kept.mutex);
    kept.descriptors.push_back(fd);
    std::vector<int> still_kept;
    for (const int descriptor : kept.descriptors) {
        if (MustStayOpen(descriptor)) {
            still_kept.push_back(descriptor);
        } else {
            close(descriptor);
        }
    }
    kept.descriptors = std::move(still_kept);
    errno = error_number;
}

} // namespace rawduck
