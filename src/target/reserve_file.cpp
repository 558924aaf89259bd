#include "target/reserve_file.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

namespace rawduck {

namespace {

[[noreturn]] void ThrowNoRoom(const std::string &path, uint64_t size_bytes, int error_number) {
    throw Error(error_number == ENOSPC ? ErrorCode::NO_SPACE : ErrorCode::IO,
                path + ": cannot reserve " + std::to_string(size_bytes) +
                    " bytes for the volume: " + ErrnoText(error_number) +
                    "; nothing was changed. Choose a smaller --size or another disk");
}

} // namespace

void ReserveFile(int fd, const std::string &path, uint64_t from, uint64_t size_bytes) {
    struct stat status;
    struct statvfs file_system;
    if (fstat(fd, &status) != 0 || fstatvfs(fd, &file_system) != 0) {
        throw Error(ErrorCode::IO, path + ": cannot ask for its size: " + ErrnoText(errno));
    }
    const uint64_t reserved = std::max(from, static_cast<uint64_t>(status.st_blocks) * 512);
    const uint64_t available = uint64_t(file_system.f_bfree) * file_system.f_frsize;
    if (size_bytes > reserved && size_bytes - reserved > available) {
        ThrowNoRoom(path, size_bytes, ENOSPC);
    }
    if (const int failed =
            posix_fallocate(fd, static_cast<off_t>(from), static_cast<off_t>(size_bytes - from))) {
        ThrowNoRoom(path, size_bytes, failed);
    }
}

} // namespace rawduck
