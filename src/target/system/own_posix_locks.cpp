#include "target/system/own_posix_locks.hpp"

#include "common/scope_exit.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <memory>
#include <sstream>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

namespace rawduck {
namespace {

//! "fe:00:1234": device and inode as the list names them.
std::string NameOf(const struct stat &status) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%02x:%02x:%" PRIu64, major(status.st_dev), minor(status.st_dev),
                  static_cast<uint64_t>(status.st_ino));
    return text.data();
}

//! Whether the list names files of that file system as stat(2) does. Others have device numbers of their own
//! for parts of them (btrfs), or hand out the inode numbers of another (overlayfs).
bool NamesAreThoseOfStat(const struct statfs &file_system) {
    // The type is as long as a word there, whatever the constants are.
    const auto type = static_cast<uint64_t>(file_system.f_type);
    return type == EXT4_SUPER_MAGIC || type == XFS_SUPER_MAGIC || type == TMPFS_MAGIC;
}

//! A lock of this process that the list must show, on a file of memory that nobody else knows. Without it,
//! nothing tells a list without locks from one that is hidden, or that is of another PID namespace.
class Witness {
  public:
    //! With its lock. Made where there is none, also where a program has closed it, and opened something else in its place.
    //! nullptr: it could not be made.
    static const Witness *Get() {
        static std::atomic<const Witness *> current{nullptr};
        const Witness *known = current;
        if (!known || !known->IsThere()) {
            auto fresh = std::make_unique<Witness>();
            if (fresh->fd_ < 0) {
                return nullptr;
            }
            if (current.compare_exchange_strong(known, fresh.get())) {
                known = fresh.release(); // never closed: files are closed until the process ends
            } else {
                close(fresh->fd_); // another thread was faster
            }
        }
        return known->Lock() ? known : nullptr;
    }

    //! Not one of the standard streams, which a program may have closed and go on to write to.
    Witness() {
        const int memory = memfd_create("rawduck-lock-witness", MFD_CLOEXEC);
        const ScopeExit close_it([&] { close(memory); });
        fd_ = fcntl(memory, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        made_ = {};
        fstat(fd_, &made_);
    }
    std::string Name() const { return NameOf(made_); }
    std::string Descriptor() const { return std::to_string(fd_); }

  private:
    bool IsThere() const {
        struct stat now;
        return fstat(fd_, &now) == 0 && now.st_dev == made_.st_dev && now.st_ino == made_.st_ino;
    }
    //! Again each time, which costs nothing where it is there: a child made by fork() has no locks. Shared: its parent has
    //! locked the same memory.
    bool Lock() const {
        struct flock lock = {};
        lock.l_type = F_RDLCK;
        lock.l_whence = SEEK_SET;
        return fcntl(fd_, F_SETLK, &lock) == 0;
    }

    int fd_;
    struct stat made_;
};

//! What is left of the kernel's page behind a whole list: more than a lock with some that wait for it takes.
constexpr size_t ROOM_FOR_ANOTHER = 512;

//! Empty unless one read has all of it: what comes in pieces may miss a lock that moves in between. The kernel
//! gives out a page at a time, of locks that are there at one moment. Nothing to read behind it does not say that
//! it was whole: the locks that did not fit may have moved to where others have gone. So there must be room, too.
std::string ReadList() {
    const int list = open("/proc/locks", O_RDONLY | O_CLOEXEC);
    const ScopeExit close_it([&] { close(list); });
    std::array<char, 64 * 1024> text;
    std::array<char, 1> more;
    const size_t page = std::min(static_cast<size_t>(sysconf(_SC_PAGESIZE)), text.size());
    const ssize_t length = read(list, text.data(), page);
    const bool whole = length > 0 && static_cast<size_t>(length) + ROOM_FOR_ANOTHER <= page &&
                       read(list, more.data(), more.size()) == 0;
    return whole ? std::string(text.data(), static_cast<size_t>(length)) : "";
}

//! The names of the files, from lines such as "3: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF". False when
//! the list is not to be trusted.
bool ListOwn(std::vector<std::string> &names) {
    const Witness *const witness = Witness::Get();
    if (!witness) {
        return false;
    }
    const std::string self = std::to_string(getpid());
    std::istringstream list(ReadList());
    for (std::string line; std::getline(list, line);) {
        std::istringstream words(line);
        std::string number, kind, advisory, type, process, name;
        if (words >> number >> kind >> advisory >> type >> process >> name && kind == "POSIX" &&
            process == self) {
            names.push_back(name);
        }
    }
    const auto shown = std::remove(names.begin(), names.end(), witness->Name());
    const bool trusted = shown != names.end();
    names.erase(shown, names.end());
    return trusted;
}

template <typename StatFileSystem> Held Ask(const struct stat &status, StatFileSystem stat_file_system) {
    std::vector<std::string> names;
    if (!ListOwn(names)) {
        return Held::UNKNOWN;
    }
    if (names.empty()) {
        return Held::NO;
    }
    struct statfs file_system;
    if (stat_file_system(&file_system) != 0 || !NamesAreThoseOfStat(file_system)) {
        return Held::UNKNOWN;
    }
    return std::find(names.begin(), names.end(), NameOf(status)) == names.end() ? Held::NO : Held::YES;
}

} // namespace

std::string LockWitness() {
    const Witness *const witness = Witness::Get();
    return witness ? witness->Descriptor() : "";
}

Held AskLockList(const std::string &path, const struct stat &status) {
    return Ask(status, [&](struct statfs *file_system) { return statfs(path.c_str(), file_system); });
}

Held AskLockList(int fd, const struct stat &status) {
    return Ask(status, [&](struct statfs *file_system) { return fstatfs(fd, file_system); });
}

} // namespace rawduck
