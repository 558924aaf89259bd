#include "ceph/channel/memory_file.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace rawduck_ceph {

namespace {

constexpr int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

[[noreturn]] void Fail(const char *what) {
    throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

void WriteAll(int fd, std::vector<iovec> parts) {
    size_t next = 0;
    while (next < parts.size()) {
        if (parts[next].iov_len == 0) {
            next++;
            continue;
        }
        const auto count = static_cast<int>(std::min<size_t>(parts.size() - next, IOV_MAX));
        ssize_t written = writev(fd, &parts[next], count);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            Fail("writing a file in memory");
        }
        while (written > 0) {
            const size_t taken = std::min(static_cast<size_t>(written), parts[next].iov_len);
            parts[next].iov_base = static_cast<char *>(parts[next].iov_base) + taken;
            parts[next].iov_len -= taken;
            written -= static_cast<ssize_t>(taken);
            next += parts[next].iov_len == 0 ? 1 : 0;
        }
    }
}

} // namespace

void OwnedFd::Close() {
    if (fd_ >= 0) {
        close(fd_);
        fd_ = -1;
    }
}

OwnedFd MakeMemoryFile(const char *name, std::vector<iovec> content) {
    OwnedFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) {
        Fail("making a file in memory");
    }
    WriteAll(fd.Get(), std::move(content));
    if (fcntl(fd.Get(), F_ADD_SEALS, SEALS) != 0) {
        Fail("sealing a file in memory");
    }
    return fd;
}

bool IsSealed(int fd, uint64_t bytes) {
    // Only files in memory have seals. The size by lseek, because glibc's fstat looks up a path, which a worker
    // may not.
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && lseek(fd, 0, SEEK_END) == static_cast<off_t>(bytes);
}

void ReadMemoryFile(int fd, char *buffer, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(fd, buffer + done, bytes - done, static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            Fail("reading a file in memory");
        }
        done += static_cast<size_t>(got);
    }
}

MappedFile::MappedFile(OwnedFd fd, uint64_t bytes) : bytes_(bytes) {
    if (bytes == 0 || !IsSealed(fd.Get(), bytes)) {
        throw std::runtime_error("a file in memory is not as it was announced");
    }
    void *mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.Get(), 0);
    if (mapped == MAP_FAILED) {
        Fail("mapping a file in memory");
    }
    data_ = static_cast<const char *>(mapped);
}

MappedFile::~MappedFile() {
    munmap(const_cast<char *>(data_), bytes_);
}

} // namespace rawduck_ceph
