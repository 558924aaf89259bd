#include "target/system/lock_holder.hpp"

#include "common/error.hpp"
#include "target/system/sysfs.hpp"

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
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
std::string LockedInode(dev_t file_system, ino_t inode) {
    char text[64];
    snprintf(text, sizeof text, "%02x:%02x:%llu", major(file_system), minor(file_system),
             static_cast<unsigned long long>(inode));
    return text;
}

std::string LockedInode(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 ? LockedInode(status.st_dev, status.st_ino) : "";
}

//! Of a lock: "4096 EOF", or "0 511", with its last byte.
ByteRange LockedRange(std::istream &fields) {
    uint64_t first = 0;
    std::string last;
    fields >> first >> last;
    return {first, last == "EOF" ? 0 : std::strtoull(last.c_str(), nullptr, 10) - first + 1};
}

//! Whether a line of fdinfo describes a held lock on the inode that conflicts with the one asked for.
//! "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 0 EOF"
bool Conflicts(const std::string &line, const std::string &inode, bool shared, const ByteRange &range) {
    const size_t at = line.find(" " + inode + " ");
    if (line.compare(0, 5, "lock:") != 0 || at == std::string::npos) {
        return false;
    }
    std::istringstream fields(line.substr(at + inode.size() + 2));
    return (!shared || line.find(" WRITE ") != std::string::npos) && Overlap(range, LockedRange(fields));
}

constexpr uint64_t EXITING = 4; // PF_EXITING of the kernel

//! Its descriptors are about to be closed, or are: it is
//! ending, or has been killed. `thread` is its directory.
bool IsEnding(const std::string &thread) {
    // "4711 (any (name) S 1 ...": the flags are the seventh field behind the name.
    const std::string text = ReadAttribute(thread + "/stat");
    const size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) {
        return true;
    }
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    uint64_t flags = 0;
    fields >> skipped >> skipped >> skipped >> skipped >> skipped >> skipped >> flags;
    if ((flags & EXITING) != 0) {
        return true;
    }
    std::ifstream stream(thread + "/status");
    for (std::string line; std::getline(stream, line);) {
        const bool pending = line.compare(0, 7, "SigPnd:") == 0 || line.compare(0, 7, "ShdPnd:") == 0;
        if (pending && (std::stoull(line.substr(7), nullptr, 16) >> (SIGKILL - 1) & 1) != 0) {
            return true;
        }
    }
    return false;
}

//! The directory of a thread of the process that lives; the first thread may have ended, and shows no
//! descriptors then. Empty when the process has ended.
std::string LivingThread(const std::string &process) {
    const std::string threads = "/proc/" + process + "/task";
    for (const auto &thread : ListDirectory(threads)) {
        if (!IsEnding(threads + "/" + thread)) {
            return threads + "/" + thread;
        }
    }
    return "";
}

//! Also of a directory that is gone, since the process has ended meanwhile.
bool MayLookInto(const std::string &directory) {
    return access(directory.c_str(), R_OK | X_OK) == 0 || errno == ENOENT || errno == ESRCH;
}

//! Whether /proc shows all processes of the machine.
bool ProcShowsEveryone() {
    constexpr ino_t INITIAL_PID_NAMESPACE = 0xEFFFFFFC; // PROC_PID_INIT_INO of the kernel
    struct stat own, first;
    return stat("/proc/self/ns/pid", &own) == 0 && own.st_ino == INITIAL_PID_NAMESPACE &&
           stat("/proc/1", &first) == 0; // not so with hidepid
}

using Holds = std::function<bool(const std::string &, const std::string &)>;

LockHolder SearchProcesses(const Holds &holds) {
    LockHolder holder;
    holder.everyone_seen = ProcShowsEveryone();
    for (const auto &entry : ListDirectory("/proc")) {
        if (!std::isdigit(static_cast<unsigned char>(entry[0]))) {
            continue;
        }
        const bool hidden = !MayLookInto("/proc/" + entry + "/task");
        const std::string thread = LivingThread(entry);
        if (hidden || (!thread.empty() && !MayLookInto(thread + "/fdinfo"))) {
            holder.everyone_seen = false;
        } else if (!thread.empty() && holds(entry, thread) && !LivingThread(entry).empty()) {
            holder.process = std::stol(entry);
            break;
        }
    }
    return holder;
}

//! The first living process of which `holds` is true: it is given the process and the directory of a thread.
LockHolder FindProcess(const Holds &holds) {
    try {
        return SearchProcesses(holds);
    } catch (const Error &) {
        return {0, false}; // no descriptor is left to look through: it may be anybody
    }
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
    lock.l_len = static_cast<off_t>(LockEnd(range) - range.start);
    if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0) {
        return {lock.l_pid, true};
    }
    // The kernel reports no process for an open file description lock (l_pid is -1), but each process shows
    // the locks of its descriptors.
    const std::string inode = LockedInode(fd);
    return FindProcess([&](const std::string &process, const std::string &thread) {
        for (const auto &descriptor : ListDirectory(thread + "/fdinfo")) {
            std::ifstream stream(thread + "/fdinfo/" + descriptor);
            for (std::string line; !IsOwn(process, descriptor, fd) && std::getline(stream, line);) {
                if (Conflicts(line, inode, shared, range)) {
                    return true;
                }
            }
        }
        return false;
    });
}

bool IsLocked(dev_t file_system, ino_t inode, ByteRange range, bool shared) {
    // "1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 0 EOF". One that somebody waits for begins with "1: ->".
    std::istringstream locks(ReadAttribute("/proc/locks"));
    for (std::string line; std::getline(locks, line);) {
        std::istringstream fields(line);
        std::string number, kind, advisory, mode, holder, file;
        fields >> number >> kind >> advisory >> mode >> holder >> file;
        const bool conflicts =
            kind != "->" && file == LockedInode(file_system, inode) && (!shared || mode == "WRITE");
        if (conflicts && Overlap(range, LockedRange(fields))) {
            return true;
        }
    }
    return false;
}

bool Overlap(const ByteRange &left, const ByteRange &right) {
    return left.start < LockEnd(right) && right.start < LockEnd(left);
}

LockHolder FindDeviceWriter(dev_t device, int except_fd) {
    return FindProcess([&](const std::string &process, const std::string &thread) {
        for (const auto &descriptor : ListDirectory(thread + "/fdinfo")) {
            struct stat status;
            const std::string link = thread + "/fd/" + descriptor;
            if (!IsOwn(process, descriptor, except_fd) && stat(link.c_str(), &status) == 0 &&
                S_ISBLK(status.st_mode) && status.st_rdev == device &&
                OpensForWriting(thread + "/fdinfo/" + descriptor)) {
                return true;
            }
        }
        return false;
    });
}

LockHolder FindOpener(dev_t character_device) {
    return FindProcess([&](const std::string &, const std::string &thread) {
        for (const auto &descriptor : ListDirectory(thread + "/fdinfo")) {
            struct stat status;
            if (stat((thread + "/fd/" + descriptor).c_str(), &status) == 0 && S_ISCHR(status.st_mode) &&
                status.st_rdev == character_device) {
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
    std::string command;
    try {
        command = ReadAttribute("/proc/" + number + "/comm");
    } catch (const Error &) {
        // Without a descriptor for it, its number is all that is known of it.
    }
    return "process " + number + (command.empty() ? "" : " (" + command + ")");
}

} // namespace rawduck
