//! Regular files for volumes.
#pragma once

#include "common/error.hpp"
#include "target/directory_entry.hpp"
#include "target/lock/remove_made.hpp"
#include "target/reserve_file.hpp"
#include "target/system/file_descriptor.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

//! A regular file that is made, or made longer, for a volume. Undone unless Keep is called.
class PreparedFile {
  public:
    //! Makes the file if it is not there; nothing else is changed.
    explicit PreparedFile(const std::string &path) : path_(path), name_(path) {
        made_ = FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644),
                               FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
        created_ = made_.IsOpen();
        const int error_number = errno;
        if (!created_ && error_number != EEXIST) {
            throw Error(CodeOf(error_number, ErrorCode::PERMISSION),
                        path + ": cannot create the file for the volume: " + ErrnoText(error_number) +
                            (error_number == ENOENT ? "; make its folder first" : ""));
        }
    }
    //! Of what could not be locked: another process may have made the new file its own.
    ~PreparedFile() {
        if (made_.IsOpen()) {
            RemoveIfUnused(made_.Get(), path_);
        }
    }
    PreparedFile(const PreparedFile &) = delete;
    PreparedFile &operator=(const PreparedFile &) = delete;

    //! Grows the file to `size_bytes` if it is shorter, with all of its space. `fd` is the file, locked.
    void Reserve(int fd, uint64_t size_bytes) {
        struct stat status;
        if (fstat(fd, &status) != 0) {
            throw Error(ErrorCode::IO, path_ + ": cannot ask for its size: " + ErrnoText(errno));
        }
        old_size_ = status.st_size;
        grown_fd_ = old_size_ < static_cast<off_t>(size_bytes) ? fd : -1;
        ReserveFile(fd, path_, 0, size_bytes);
    }
    //! `fd` is the file, locked. Until then others may have made it their own: it is not ours to remove when
    //! it holds anything.
    void Locked(int fd) {
        struct stat status;
        created_ = created_ && fstat(fd, &status) == 0 && status.st_size == 0;
        locked_fd_ = fd;
        made_ = FileDescriptor();
    }
    //! The name of a file that was made, durably. While it is locked.
    void KeepName() {
        if (created_) {
            name_.Run(locked_fd_);
        }
    }
    void Keep() { kept_ = true; }
    //! The file may have become a volume of the new length.
    void KeepLength() { grown_fd_ = -1; }
    //! To be called while the file is locked.
    void Undo() {
        if (created_ && !kept_) {
            unlink(path_.c_str());
        } else if (grown_fd_ >= 0 && !kept_) {
            // If that fails, the contents of the file are still there.
            [[maybe_unused]] const int result = ftruncate(grown_fd_, old_size_);
        }
        kept_ = true;
    }

  private:
    const std::string path_;
    const EntryFlush name_;
    FileDescriptor made_; //!< until it is locked
    bool created_ = false, kept_ = false;
    int locked_fd_ = -1, grown_fd_ = -1;
    off_t old_size_ = 0;
};

} // namespace rawduck
