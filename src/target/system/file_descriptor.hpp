//! A file descriptor, owned or borrowed.
#pragma once

#include "target/system/posix_lock.hpp"

#include <unistd.h>
#include <utility>

namespace rawduck {

class FileDescriptor {
  public:
    enum class Closing {
        PLAIN,
        KEEPS_POSIX_LOCKS, //!< of what stock DuckDB may have open too: see CloseKeepingPosixLocks
        NEVER              //!< it belongs to somebody who outlives this object
    };

    explicit FileDescriptor(int fd = -1, Closing closing = Closing::PLAIN) : fd_(fd), closing_(closing) {}
    FileDescriptor(FileDescriptor &&other) noexcept
        : fd_(std::exchange(other.fd_, -1)), closing_(other.closing_) {}
    FileDescriptor &operator=(FileDescriptor &&other) noexcept {
        std::swap(fd_, other.fd_);
        std::swap(closing_, other.closing_);
        return *this;
    }
    //! Closing is never where a write error shows: every file
    //! here is written with O_DIRECT and flushed by name.
    ~FileDescriptor() {
        if (fd_ < 0 || closing_ == Closing::NEVER) {
            return;
        }
        if (closing_ == Closing::KEEPS_POSIX_LOCKS) {
            CloseKeepingPosixLocks(fd_);
        } else {
            ::close(fd_);
        }
    }

    int Get() const { return fd_; }
    bool IsOpen() const { return fd_ >= 0; }
    int Release() { return std::exchange(fd_, -1); }

  private:
    int fd_;
    Closing closing_;
};

} // namespace rawduck
