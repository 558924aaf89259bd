#include "filesystem/path.hpp"

#include "common/error.hpp"
#include "device/target.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>

namespace rawduck {
namespace {

bool StartsWith(const std::string &text, const char *prefix) {
    return text.compare(0, std::strlen(prefix), prefix) == 0;
}

//! The system would look at the part before it only, DuckDB's checks at all of it.
void RefuseNul(const std::string &path) {
    const size_t at = path.find('\0');
    if (at != std::string::npos) {
        throw Error(ErrorCode::INVALID, "the path \"" + path.substr(0, at) +
                                            "\" goes on behind a NUL byte; no path contains one");
    }
}

std::string JoinComponents(const std::vector<std::string> &components, size_t first, size_t end = SIZE_MAX) {
    std::string result;
    for (size_t i = first; i < std::min(end, components.size()); i++) {
        result += (i > first ? "/" : "") + components[i];
    }
    return result;
}

VolumePath SplitInProcessPath(const std::string &path, const std::vector<std::string> &components) {
    if (components[0].back() == ':') {
        throw Error(ErrorCode::INVALID,
                    path + ": the volume needs a name, as in nvme://" + components[0] + "scratch/x.duckdb");
    }
    return {components[0], JoinComponents(components, 1)};
}

[[noreturn]] void ThrowNoTarget(const std::string &path, const std::string &candidate, int error_number) {
    if (error_number == EACCES) {
        throw Error(ErrorCode::PERMISSION, path + ": cannot look at " + candidate + ": " +
                                               ErrnoText(error_number) +
                                               "; run as root or make it readable to this user");
    }
    if (error_number != ENOENT && error_number != ENOTDIR) {
        throw Error(ErrorCode::IO, path + ": cannot look at " + candidate + ": " + ErrnoText(error_number));
    }
    throw Error(ErrorCode::NOT_FOUND, path + ": no volume here: " + candidate +
                                          " does not exist. A path is nvme://<file or device>/<name>; "
                                          "`rawduck format " +
                                          candidate + " --size 8G` or CALL nvme_format('" + candidate +
                                          "', size := '8G') makes a volume in a file.");
}

} // namespace

bool IsVolumePath(const std::string &path) {
    return StartsWith(path, VOLUME_SCHEME);
}

bool IsDirectPath(const std::string &path) {
    return StartsWith(path, DIRECT_SCHEME);
}

std::vector<std::string> PathComponents(const std::string &path) {
    RefuseNul(path);
    std::vector<std::string> result;
    size_t begin = 0;
    while (begin <= path.size()) {
        size_t end = std::min(path.find('/', begin), path.size());
        std::string component = path.substr(begin, end - begin);
        if (component == "..") {
            throw Error(ErrorCode::INVALID,
                        path + ": \"..\" is not allowed in the path of a file on a volume");
        }
        if (!component.empty() && component != ".") {
            result.push_back(std::move(component));
        }
        begin = end + 1;
    }
    return result;
}

std::string VolumePath::ToString() const {
    return VOLUME_SCHEME + target + (file.empty() ? "" : "/" + file);
}

VolumePath SplitVolumePath(const std::string &path) {
    RefuseNul(path);
    if (!IsVolumePath(path)) {
        throw Error(ErrorCode::INVALID,
                    path + ": a file on a volume is named nvme://<file or device>/<name>");
    }
    std::string rest = path.substr(std::strlen(VOLUME_SCHEME));
    auto components = PathComponents(rest);
    if (!components.empty() && rest[0] != '/' && IsInProcess(components[0])) {
        return SplitInProcessPath(path, components);
    }
    if (rest.empty() || rest[0] != '/') {
        throw Error(ErrorCode::INVALID, path + ": a volume is named by an absolute path, as in "
                                               "nvme:///dev/nvme0n1/x.duckdb, or by memory:<name>");
    }
    struct stat status;
    // From behind: what leads through the volume's file or device is ENOTDIR, so that few looks find it.
    for (size_t i = components.size(); i-- > 1;) {
        const std::string front = "/" + JoinComponents(components, 0, i);
        const bool found = stat(front.c_str(), &status) == 0;
        if (found && !S_ISDIR(status.st_mode)) {
            return {front, JoinComponents(components, i)};
        }
        if (found || errno != ENOTDIR) {
            break; // an error, or the path has no more components; what follows tells which
        }
    }
    std::string candidate;
    for (size_t i = 0; i < components.size(); i++) {
        candidate += "/" + components[i];
        if (stat(candidate.c_str(), &status) != 0) {
            ThrowNoTarget(path, candidate, errno);
        }
        if (!S_ISDIR(status.st_mode)) {
            return {candidate, JoinComponents(components, i + 1)};
        }
    }
    throw Error(
        ErrorCode::NOT_FOUND,
        path + ": no volume here: " + (candidate.empty() ? "/" : candidate) +
            " is a directory. A path is "
            "nvme://<file or device>/<name>; `rawduck format <file> --size 8G` or CALL nvme_format('<file>', "
            "size := '8G') makes a volume in a file.");
}

std::string CanonicalTarget(const std::string &target) {
    if (IsInProcess(target)) {
        return target;
    }
    char *resolved = realpath(target.c_str(), nullptr);
    std::string result = resolved ? resolved : target;
    std::free(resolved);
    return result;
}

std::string StripDirectScheme(const std::string &path) {
    RefuseNul(path);
    if (!IsDirectPath(path)) {
        throw Error(ErrorCode::INVALID, path + ": an ordinary file is named direct://<path>");
    }
    std::string result = path.substr(std::strlen(DIRECT_SCHEME));
    if (result.empty()) {
        throw Error(ErrorCode::INVALID,
                    path + ": the path is empty; write direct:///data/x.duckdb or direct://x.duckdb");
    }
    return result;
}

} // namespace rawduck
