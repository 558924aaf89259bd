#include "volume/backup/local_destination.hpp"

#include "common/error.hpp"
#include "direct/rename_file.hpp"
#include "target/directory_entry.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {

namespace {

[[noreturn]] void Throw(const std::string &path, const char *tried) {
    throw Error(errno == ENOSPC ? ErrorCode::NO_SPACE : CodeOf(errno, ErrorCode::IO),
                path + ": cannot " + tried + " it (" + ErrnoText(errno) + ")");
}

//! By anybody, in this process too.
bool IsLocked(int fd) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool IsSameFile(int fd, const std::string &path) {
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && lstat(path.c_str(), &named) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

} // namespace

LocalDestination::~LocalDestination() {
    for (const Part &part : parts_) {
        unlink(part.path.c_str());
    }
}

StreamPosition LocalDestination::Begin(const StreamHeader &header) {
    if (header.incremental || !(header.from == StreamPosition())) {
        throw Error(
            ErrorCode::INVALID,
            path_ +
                ": an ordinary file can only be made of a stream that has all of a snapshot, and this has " +
                (header.incremental ? "what changed since " + header.base.Name()
                                    : "the rest of one that was cut off") +
                "; receive it into a volume, which may be a file, too (rawduck format)");
    }
    for (const std::string &ending : StreamEndings()) {
        struct stat status;
        if (lstat((path_ + ending).c_str(), &status) == 0) {
            throw Error(ErrorCode::EXISTS, path_ + ending +
                                               ": it exists already, and a restore replaces nothing; name "
                                               "another file, or move it away");
        }
    }
    for (const StreamFile &file : header.files) {
        const std::string path = path_ + ".receiving" + file.ending;
        // As soon as it has its name, stock DuckDB may attach it in this process.
        FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666),
                          FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
        if (!fd.IsOpen() && errno == EEXIST) {
            throw Error(ErrorCode::EXISTS,
                        path + ": it is what a restore has left that was killed, or one that runs; "
                               "remove it if none does");
        }
        if (!fd.IsOpen()) {
            Throw(path, "make");
        }
        parts_.push_back({path, path_ + file.ending, std::move(fd)});
        if (ftruncate(parts_.back().fd.Get(), static_cast<off_t>(file.size)) != 0) {
            Throw(path, "give its size to");
        }
    }
    return {};
}

// The file is zeros where nothing is written.
void LocalDestination::Write(const StreamPiece &piece) {
    const Part &part = parts_[piece.range.file];
    for (uint64_t done = 0; piece.data && done < piece.range.length;) {
        const ssize_t written = pwrite(part.fd.Get(), piece.data + done, piece.range.length - done,
                                       static_cast<off_t>(piece.range.offset + done));
        if (written < 0 && errno != EINTR) {
            Throw(part.path, "write to");
        }
        done += written > 0 ? static_cast<uint64_t>(written) : 0;
    }
}

// A log must not stay beside a database that somebody else has made meanwhile: it would be replayed into that. Where somebody has
// attached the database already, with all of its logs, it is his.
void LocalDestination::GiveUpNames() noexcept {
    const Part &database = parts_.front();
    if (IsSameFile(database.fd.Get(), database.final_path) && IsLocked(database.fd.Get())) {
        return;
    }
    for (const Part &part : parts_) {
        if (IsSameFile(part.fd.Get(), part.final_path)) {
            unlink(part.final_path.c_str());
        }
    }
    try {
        EntryFlush(path_).Run(parts_.front().fd.Get());
    } catch (const std::exception &) {
        // The error that led here says what is wrong.
    }
}

// The logs first: a database that is there has all that it consists of.
void LocalDestination::Finish() {
    for (const Part &part : parts_) {
        if (fsync(part.fd.Get()) != 0) {
            Throw(part.path, "flush");
        }
    }
    try {
        for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
            RenameToNewName(part->path, part->final_path);
        }
    } catch (...) {
        GiveUpNames();
        throw;
    }
    parts_.clear();
}

} // namespace rawduck
