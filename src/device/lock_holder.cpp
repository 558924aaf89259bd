#include "device/lock_holder.hpp"

#include "device/sysfs.hpp"

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <functional>
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

//! Its descriptors are about to be closed, or the requests of its threads about to end.
bool IsBeingKilled(const std::string &process) {
    std::ifstream stream("/proc/" + process + "/status");
    for (std::string line; std::getline(stream, line);) {
        if (line.compare(0, 6, "State:") == 0 && line.find_first_of("ZX", 6) != std::string::npos) {
            return true;
        }
        const bool pending = line.compare(0, 7, "SigPnd:") == 0 || line.compare(0, 7, "ShdPnd:") == 0;
        if (pending && (std::stoull(line.substr(7), nullptr, 16) >> (SIGKILL - 1) & 1) != 0) {
            return true;
        }
    }
    return false;
}

//! The first living process of which `holds` is true: it is given the process and the path of its fdinfo.
LockHolder FindProcess(const std::function<bool(const std::string &, const std::string &)> &holds) {
    LockHolder holder;
    for (const auto &entry : ListDirectory("/proc")) {
        if (!std::isdigit(static_cast<unsigned char>(entry[0]))) {
            continue;
        }
        const std::string descriptors = "/proc/" + entry + "/fdinfo";
        if (access(descriptors.c_str(), R_OK | X_OK) != 0 && errno == EACCES) {
            holder.everyone_seen = false;
        } else if (holds(entry, descriptors) && !IsBeingKilled(entry)) {
            holder.process = std::stol(entry);
            break;
        }
    }
    return holder;
}

bool IsOwn(const std::string &process, const std::string &descriptor, int except_fd) {
    return descriptor == std::to_string(except_fd) && process == std::to_string(getpid());
}

//! Of a line such as "flags:	02100002".
bool OpensForWriting(const std::string &fdinfo) {
    std::ifstream stream(fdinfo);
    for (std::string line; std::getline(stream, line);) {
        if (line.compare(0, 6, "flags:") == 0) {
            return (std::stoul(line.substr(6), nullptr, 8) & O_ACCMODE) != O_RDONLY;
        }
    }
    return false;
}

} // namespace

LockHolder FindLockHolder(int fd, bool shared, ByteRange range) {
    struct flock lock = {};
    lock.l_type = shared ? F_RDLCK : F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(range.start);
    lock.l_len = static_cast<off_t>(range.length);
    if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0) {
        return {lock.l_pid, true};
    }
    // The kernel reports no process for an open file description lock (l_pid is -1), but each process shows
    // the locks of its descriptors.
    const std::string inode = LockedInode(fd);
    return FindProcess([&](const std::string &process, const std::string &descriptors) {
        for (const auto &descriptor : ListDirectory(descriptors)) {
            std::ifstream stream(descriptors + "/" + descriptor);
            for (std::string line; !IsOwn(process, descriptor, fd) && std::getline(stream, line);) {
                if (Conflicts(line, inode, shared)) {
                    return true;
                }
            }
        }
        return false;
    });
}

LockHolder FindDeviceWriter(dev_t device, int except_fd) {
    return FindProcess([&](const std::string &process, const std::string &descriptors) {
        for (const auto &descriptor : ListDirectory(descriptors)) {
            struct stat status;
            const std::string link = "/proc/" + process + "/fd/" + descriptor;
            if (!IsOwn(process, descriptor, except_fd) && stat(link.c_str(), &status) == 0 &&
                S_ISBLK(status.st_mode) && status.st_rdev == device &&
                OpensForWriting(descriptors + "/" + descriptor)) {
                return true;
            }
        }
        return false;
    });
}

std::string HolderName(const LockHolder &holder) {
    const std::string number = std::to_string(holder.process);
    if (holder.process == 0) {
        return "another process";
    }
    if (holder.process == getpid()) {
        return "this process (" + number + ")";
    }
    const std::string command = ReadAttribute("/proc/" + number + "/comm");
    return "process " + number + (command.empty() ? "" : " (" + command + ")");
}

} // namespace rawduck
