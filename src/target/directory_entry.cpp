#include "target/directory_entry.hpp"

#include "common/error.hpp"
#include "target/system/open_error.hpp"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace rawduck {

std::string DirectoryOf(const std::string &path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash == 0 ? 1 : slash);
}

// Who may write to a directory need not be allowed to read it (mode 0333), and only who may read it can open and so flush
// it. Then all of its file system is flushed, which any file of it will do for, and the names are among that. It takes
// longer where others are writing, too.
EntryFlush::EntryFlush(const std::string &path, const std::string &file)
    : directory_(DirectoryOf(path)), fd_(OpenAboveStreams(directory_.c_str(), O_RDONLY | O_DIRECTORY)) {
    const int error_number = errno;
    if (fd_.IsOpen()) {
        return;
    }
    flushes_file_system_ = true;
    const bool left_to_others = error_number == ENOENT || error_number == ENOTDIR;
    if (error_number != EACCES && !left_to_others) {
        ThrowOpenError(directory_, "open the directory to flush it", error_number);
    }
    if (file.empty() || left_to_others) {
        return;
    }
    fd_ = FileDescriptor(OpenAboveStreams(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW),
                         FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
    if (!fd_.IsOpen()) {
        const int file_error = errno;
        throw Error(CodeOf(file_error, ErrorCode::PERMISSION),
                    file + ": it cannot be opened (" + ErrnoText(file_error) + "), nor can " + directory_ +
                        " (" + ErrnoText(error_number) +
                        "), and one of the two is needed to flush what is done to the name; nothing was "
                        "changed. Let this user read the directory");
    }
}

void EntryFlush::Run(int made) const {
    const int fd = fd_.IsOpen() ? fd_.Get() : made;
    // Of the whole file system, errors are reported from Linux 5.8 on.
    if ((flushes_file_system_ ? syncfs(fd) : fsync(fd)) != 0) {
        throw Error(ErrorCode::IO, directory_ + ": cannot flush " +
                                       (flushes_file_system_ ? "its file system" : "the directory") + ": " +
                                       ErrnoText(errno) + "; look into the kernel log (dmesg)");
    }
}

} // namespace rawduck
