//! File descriptors, and files in memory that one process fills and hands to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace rawduck_ceph {

//! Closes a file descriptor at the end of its lifetime.
class OwnedFd {
  public:
    OwnedFd() = default;
    explicit OwnedFd(int fd) : fd_(fd) {}
    OwnedFd(OwnedFd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    OwnedFd &operator=(OwnedFd &&other) noexcept {
        Close();
        fd_ = std::exchange(other.fd_, -1);
        return *this;
    }
    ~OwnedFd() { Close(); }

    int Get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void Close();

  private:
    int fd_ = -1;
};

//! Fills a file in memory. All functions throw std::runtime_error.
class MemoryFileWriter {
  public:
    explicit MemoryFileWriter(const char *name);
    void Write(const void *data, size_t bytes);
    //! The file, which nobody can change any more.
    OwnedFd Seal();

  private:
    OwnedFd fd_;
};

//! Makes a file in memory with this content that nobody can change any more. Throws std::runtime_error.
OwnedFd MakeMemoryFile(const char *name, const std::string &content);

//! Whether it is a file in memory of exactly this size that nobody can change any more. Only such a file may
//! be mapped: one that shrinks ends the process that reads it.
bool IsSealed(int fd, uint64_t bytes);

//! Reads exactly `bytes` from the start. Throws std::runtime_error.
void ReadMemoryFile(int fd, char *buffer, size_t bytes);

//! A file in memory, mapped for reading.
class MappedFile {
  public:
    //! Throws std::runtime_error unless it is sealed and has this size.
    MappedFile(OwnedFd fd, uint64_t bytes);
    ~MappedFile();
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;

    const char *Data() const { return data_; }
    uint64_t Bytes() const { return bytes_; }

  private:
    const char *data_ = nullptr;
    uint64_t bytes_;
};

} // namespace rawduck_ceph
