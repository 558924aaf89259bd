#include "ceph/channel/memory_file.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace rawduck_ceph {

namespace {

constexpr int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

[[noreturn]] void Fail(const char *what) {
    throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

void WriteAll(int fd, const char *data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t written = write(fd, data, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            Fail("writing a file in memory");
        }
        data += written;
        bytes -= static_cast<size_t>(written);
    }
}

} // namespace

void OwnedFd::Close() {
    if (fd_ >= 0) {
        close(fd_);
        fd_ = -1;
    }
}

MemoryFileWriter::MemoryFileWriter(const char *name)
    : fd_(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (!fd_) {
        Fail("making a file in memory");
    }
}

void MemoryFileWriter::Write(const void *data, size_t bytes) {
    WriteAll(fd_.Get(), static_cast<const char *>(data), bytes);
}

OwnedFd MemoryFileWriter::Seal() {
    if (fcntl(fd_.Get(), F_ADD_SEALS, SEALS) != 0) {
        Fail("sealing a file in memory");
    }
    return std::move(fd_);
}

OwnedFd MakeMemoryFile(const char *name, const std::string &content) {
    MemoryFileWriter writer(name);
    writer.Write(content.data(), content.size());
    return writer.Seal();
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
