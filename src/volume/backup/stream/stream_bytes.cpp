#include "volume/backup/stream/stream_bytes.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

namespace {

//! How often somebody who waits for a pipe asks whether to go on.
constexpr int POLL_MS = 100;

[[noreturn]] void Throw(const std::string &name, const char *tried, int error_number, const char *advice) {
    throw Error(CodeOf(error_number, ErrorCode::IO),
                name + ": cannot " + tried + " it (" + ErrnoText(error_number) + ")" + advice);
}

std::string PathOf(int fd) {
    return "/proc/self/fd/" + std::to_string(fd);
}

//! A pipe opened anew does not wait, which is not to be set for those who have the other descriptors of it.
FileDescriptor WithoutWaiting(int fd, int access) {
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode)) {
        FileDescriptor own(open(PathOf(fd).c_str(), access | O_NONBLOCK | O_CLOEXEC));
        if (own.IsOpen()) {
            return own;
        }
    }
    return FileDescriptor(fd, FileDescriptor::Closing::NEVER);
}

//! Not what stock DuckDB has open here: to close it would take its lock along.
FileDescriptor OpenToRead(const std::string &name) {
    const int fd = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        Throw(name, "open", errno, "");
    }
    struct stat status;
    const bool can_be_database = fstat(fd, &status) != 0 || S_ISREG(status.st_mode);
    FileDescriptor own(fd, can_be_database ? FileDescriptor::Closing::KEEPS_POSIX_LOCKS
                                           : FileDescriptor::Closing::PLAIN);
    if (can_be_database) {
        CheckNoPosixLock(name, fd);
    }
    return own;
}

//! Of what can be written to: as much as there is room for. That others have the descriptor is no reason to wait for whoever reads.
ssize_t WriteSome(int fd, const char *bytes, uint64_t length) {
    struct stat status{};
    if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) {
        return send(fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    // So much a pipe takes at once. One that is another user's could not be opened anew.
    const bool waits = S_ISFIFO(status.st_mode) && (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
    return write(fd, bytes, waits ? std::min<uint64_t>(length, PIPE_BUF) : length);
}

void WaitFor(int fd, short events, const Interrupted &interrupted, const std::string &name) {
    for (;;) {
        if (interrupted && interrupted()) {
            throw Error(ErrorCode::INTERRUPTED, name + ": interrupted");
        }
        pollfd wanted{fd, events, 0};
        const int ready = poll(&wanted, 1, POLL_MS);
        if (ready > 0) {
            return;
        }
        if (ready < 0 && errno != EINTR) {
            Throw(name, "wait for", errno, "");
        }
    }
}

int OpenUnnamed(const std::string &name) {
    return open(DirectoryOf(name).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
}

//! Not without /proc, nor where links are forbidden: found out before anything is written, with a file that is given up, since
//! one that had a name gets no other.
bool GetsNames(const std::string &name) {
    const std::string tried = name + ".sending";
    const FileDescriptor fd(OpenUnnamed(name));
    return fd.IsOpen() &&
           (linkat(AT_FDCWD, PathOf(fd.Get()).c_str(), AT_FDCWD, tried.c_str(), AT_SYMLINK_FOLLOW) == 0
                ? unlink(tried.c_str()) == 0
                : errno == EEXIST);
}

//! Without a name, so that nothing is left of what is not finished, however it ended; with it where the file system cannot.
int OpenNew(const std::string &name, bool &named) {
    struct stat status{};
    if (lstat(name.c_str(), &status) == 0) {
        errno = EEXIST;
        return -1;
    }
    const int fd = GetsNames(name) ? OpenUnnamed(name) : -1;
    named = fd < 0;
    return named ? open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : fd;
}

[[noreturn]] void ThrowExists(const std::string &name) {
    struct stat status{};
    const bool is_file =
        lstat(name.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
    throw Error(ErrorCode::EXISTS,
                name + (is_file
                            ? ": it exists already; a stream replaces nothing, so remove it, or name another "
                              "file"
                            : ": it is no file, and a stream goes to a new one; write it to the standard "
                              "output (fd:1; `rawduck send` without --output), and redirect that"));
}

} // namespace

DescriptorSink::DescriptorSink(int fd, Interrupted interrupted)
    : fd_(WithoutWaiting(fd, O_WRONLY)), interrupted_(std::move(interrupted)),
      name_("descriptor " + std::to_string(fd)) {
    RequireNoTerminal();
}

DescriptorSink::DescriptorSink(const std::string &new_file, Interrupted interrupted)
    : new_name_(new_file), fd_(OpenNew(new_file, named_)), interrupted_(std::move(interrupted)),
      name_(new_file) {
    if (!fd_.IsOpen() && errno == EEXIST) {
        ThrowExists(name_);
    }
    if (!fd_.IsOpen()) {
        Throw(name_, "make", errno, "");
    }
}

DescriptorSink::~DescriptorSink() {
    if (new_name_ && named_ && !finished_) {
        unlink(name_.c_str());
    }
}

void DescriptorSink::RequireNoTerminal() const {
    if (isatty(fd_.Get())) {
        throw Error(ErrorCode::INVALID,
                    name_ + ": it is a terminal, which cannot show a stream; write it to a file or "
                            "a pipe");
    }
}

void DescriptorSink::Write(const void *data, uint64_t length) {
    const char *bytes = static_cast<const char *>(data);
    while (length > 0) {
        WaitFor(fd_.Get(), POLLOUT, interrupted_, name_);
        const ssize_t written = WriteSome(fd_.Get(), bytes, length);
        if (written < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (written < 0) {
            Throw(name_, "write to", errno,
                  errno == EPIPE ? ": who was to read it has ended, and says why. If something was received, "
                                   "`rawduck receive --token <destination>` says there how to go on"
                                 : "");
        }
        bytes += written;
        length -= static_cast<uint64_t>(written);
    }
}

void DescriptorSink::Finish() {
    // A pipe has nothing to flush.
    if (fsync(fd_.Get()) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP) {
        Throw(name_, "flush", errno, "; what was written may be lost: send again");
    }
    if (new_name_ && !named_) {
        if (linkat(AT_FDCWD, PathOf(fd_.Get()).c_str(), AT_FDCWD, name_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
            errno == EEXIST ? ThrowExists(name_) : Throw(name_, "name", errno, "");
        }
        named_ = true;
    }
    if (new_name_) {
        new_name_->Run(fd_.Get());
    }
    finished_ = true;
}

DescriptorSource::DescriptorSource(int fd, Interrupted interrupted)
    : fd_(WithoutWaiting(fd, O_RDONLY)), interrupted_(std::move(interrupted)),
      name_("descriptor " + std::to_string(fd)) {}

DescriptorSource::DescriptorSource(const std::string &file, Interrupted interrupted)
    : fd_(OpenToRead(file)), interrupted_(std::move(interrupted)), name_(file) {}

uint64_t DescriptorSource::Read(void *data, uint64_t length) {
    for (;;) {
        WaitFor(fd_.Get(), POLLIN, interrupted_, name_);
        const ssize_t bytes = read(fd_.Get(), data, length);
        if (bytes >= 0) {
            return static_cast<uint64_t>(bytes);
        }
        if (errno != EINTR && errno != EAGAIN) {
            Throw(name_, "read", errno, "");
        }
    }
}

} // namespace rawduck
