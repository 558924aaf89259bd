#include "common/error.hpp"

#include <cerrno>
#include <sys/resource.h>
#include <system_error>

namespace rawduck {

namespace {

std::string LimitText(int error_number) {
    if (error_number == ENFILE) {
        return "; the machine has as many files open as it may: raise that limit (sysctl fs.file-max), or "
               "close some";
    }
    struct rlimit limit = {};
    const bool known = error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0;
    return known ? "; this process may have " + std::to_string(limit.rlim_cur) +
                       " files open: raise that limit (ulimit -n), or close some"
                 : "";
}

} // namespace

std::string ErrnoText(int error_number) {
    return std::generic_category().message(error_number) + " (errno " + std::to_string(error_number) + ")" +
           LimitText(error_number);
}

bool IsWantOfDescriptors(int error_number) {
    return error_number == EMFILE || error_number == ENFILE;
}

ErrorCode CodeOf(int error_number, ErrorCode otherwise) {
    return IsWantOfDescriptors(error_number) ? ErrorCode::DESCRIPTORS : otherwise;
}

} // namespace rawduck
