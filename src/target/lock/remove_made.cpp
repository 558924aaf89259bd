#include "target/lock/remove_made.hpp"

#include "target/system/locked_descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

// Whoever has opened it and locks it next finds that its name is gone (TargetLock::RequireName).
void RemoveIfUnused(int fd, const std::string &path) noexcept {
    if (TryLock(fd, F_WRLCK, {}) != 0) {
        return;
    }
    struct stat made, named;
    if (fstat(fd, &made) == 0 && made.st_size == 0 && stat(path.c_str(), &named) == 0 &&
        made.st_dev == named.st_dev && made.st_ino == named.st_ino) {
        unlink(path.c_str());
    }
    TryLock(fd, F_UNLCK, {});
}

} // namespace rawduck
