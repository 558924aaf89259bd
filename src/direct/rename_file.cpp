#include "direct/rename_file.hpp"

#include "common/error.hpp"
#include "target/directory_entry.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rawduck {
namespace {

[[noreturn]] void ThrowRenameError(const std::string &from, const std::string &to, int error_number) {
    if (error_number == EEXIST) {
        throw Error(ErrorCode::EXISTS, to + ": it exists already");
    }
    throw Error(ErrorCode::IO, from + ": cannot rename it to " + to + ": " + ErrnoText(error_number));
}

} // namespace

void RenameToNewName(const std::string &from, const std::string &to) {
    const EntryFlush name(to, from);
    // C libraries before 2.28 do not have this call.
    long result = syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
        // The file system does not know that flag. A link replaces nothing either.
        result = link(from.c_str(), to.c_str());
        result = result == 0 ? unlink(from.c_str()) : result;
    }
    if (result != 0) {
        ThrowRenameError(from, to, errno);
    }
    name.Run();
}

void RenameReplacing(const std::string &from, const std::string &to) {
    const EntryFlush name(to, from);
    if (rename(from.c_str(), to.c_str()) != 0) {
        ThrowRenameError(from, to, errno);
    }
    name.Run();
}

} // namespace rawduck
