#include "device/lock_holder.hpp"

#include "device/sysfs.hpp"

#include <cctype>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! "fe:00:1234", the form of /proc/locks and of fdinfo.
std::string LockedInode(int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return "";
    }
    char text[64];
    snprintf(text, sizeof text, "%02x:%02x:%llu", major(status.st_dev), minor(status.st_dev),
             static_cast<unsigned long long>(status.st_ino));
    return text;
}

//! Whether a line of fdinfo describes a held lock on the inode that conflicts with the one asked for.
bool Conflicts(const std::string &line, const std::string &inode, bool shared) {
    if (line.compare(0, 5, "lock:") != 0 || line.find(" " + inode + " ") == std::string::npos) {
        return false;
    }
    return !shared || line.find(" WRITE ") != std::string::npos;
}

bool HoldsLock(const std::string &process, const std::string &inode, bool shared, int except_fd) {
    const std::string directory = "/proc/" + process + "/fdinfo";
    const bool own = process == std::to_string(getpid());
    for (const auto &fd : ListDirectory(directory)) {
        if (own && fd == std::to_string(except_fd)) {
            continue;
        }
        std::ifstream stream(directory + "/" + fd);
        for (std::string line; std::getline(stream, line);) {
            if (Conflicts(line, inode, shared)) {
                return true;
            }
        }
    }
    return false;
}

//! The kernel reports no process for an open file description lock (l_pid is -1), but each process shows the
//! locks of its descriptors. 0 when the holder is out of sight: another user's, or in another PID namespace.
long FindHolder(int fd, bool shared) {
    const std::string inode = LockedInode(fd);
    if (inode.empty()) {
        return 0;
    }
    for (const auto &entry : ListDirectory("/proc")) {
        if (std::isdigit(static_cast<unsigned char>(entry[0])) && HoldsLock(entry, inode, shared, fd)) {
            return std::stol(entry);
        }
    }
    return 0;
}

} // namespace

std::string DescribeLockHolder(int fd, bool shared) {
    struct flock lock = {};
    lock.l_type = shared ? F_RDLCK : F_WRLCK;
    lock.l_whence = SEEK_SET;
    long holder = 0;
    if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0) {
        holder = lock.l_pid;
    }
    if (holder == 0) {
        holder = FindHolder(fd, shared);
    }
    if (holder == 0) {
        return "another process holds a lock on it";
    }
    if (holder == getpid()) {
        return "this process (" + std::to_string(holder) +
               ") already holds a lock on it through another handle";
    }
    std::string command = ReadAttribute("/proc/" + std::to_string(holder) + "/comm");
    return "process " + std::to_string(holder) + (command.empty() ? "" : " (" + command + ")") +
           " holds a lock on it";
}

} // namespace rawduck
