#include "volume/names/path.hpp"

#include "common/error.hpp"
#include "common/text/text.hpp"
#include "target/target.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! As many as Linux follows. Behind that a path stays as it is, and opening it fails.
constexpr size_t LINKS_MAX = 40;

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

VolumePath SplitNamedPath(const std::string &path, const std::vector<std::string> &components) {
    if (components[0].back() == ':') {
        throw Error(ErrorCode::INVALID,
                    path + ": the volume needs a name, as in nvme://" + components[0] + "scratch/x.duckdb");
    }
    return {components[0], JoinComponents(components, 1)};
}

//! Without empty components and ".".
std::deque<std::string> SplitAtSlashes(const std::string &path) {
    std::deque<std::string> result;
    for (size_t begin = 0; begin <= path.size();) {
        const size_t end = std::min(path.find('/', begin), path.size());
        std::string component = path.substr(begin, end - begin);
        if (!component.empty() && component != ".") {
            result.push_back(std::move(component));
        }
        begin = end + 1;
    }
    return result;
}

//! Where a symbolic link leads. False when there is no link at the path.
bool ReadLink(const std::string &path, std::string &link) {
    char buffer[PATH_MAX];
    const ssize_t length = readlink(path.c_str(), buffer, sizeof(buffer));
    if (length <= 0) {
        return false;
    }
    link.assign(buffer, static_cast<size_t>(length));
    return true;
}

[[noreturn]] void ThrowRelative(const std::string &path, const std::string &rest) {
    char folder[PATH_MAX];
    const bool known = !rest.empty() && getcwd(folder, sizeof(folder));
    const std::string absolute = known ? std::string(folder) + "/" + rest : "/dev/nvme0n1/x.duckdb";
    // Which of the two is there is not looked up: who may read no files would learn what files there are.
    const std::string from_root =
        known ? std::string(", or from the root ") + VOLUME_SCHEME + "/" + rest : "";
    throw Error(ErrorCode::INVALID, path + ": a volume is named by an absolute path, as in " + VOLUME_SCHEME +
                                        absolute + from_root + ", or by memory:<name>");
}

//! What of a path is meant to be the volume's file, of which the component `first` is missing, maybe as a folder: the
//! next name that looks like a file's, or all but the last.
std::string MeantTarget(const std::vector<std::string> &components, size_t first) {
    const size_t last = components.size() - 1;
    size_t meant = first;
    while (meant < last && components[meant].find('.') == std::string::npos) {
        meant++;
    }
    if (meant == last && first < last) {
        meant = last - 1;
    }
    return "/" + JoinComponents(components, 0, meant + 1);
}

[[noreturn]] void ThrowNoTarget(const std::string &path, const std::string &candidate,
                                const std::string &meant, int error_number) {
    if (error_number == EACCES) {
        throw Error(ErrorCode::PERMISSION, path + ": cannot look at " + candidate + ": " +
                                               ErrnoText(error_number) +
                                               "; run as root or make it readable to this user");
    }
    if (error_number != ENOENT && error_number != ENOTDIR) {
        throw Error(ErrorCode::IO, path + ": cannot look at " + candidate + ": " + ErrnoText(error_number));
    }
    const std::string missing = path + ": no volume here: " + candidate + " does not exist";
    if (StartsWith(path, std::string(VOLUME_SCHEME) + "/dev/")) {
        throw Error(ErrorCode::NOT_FOUND, missing + "; `rawduck devices` lists the devices of this machine");
    }
    throw Error(ErrorCode::NOT_FOUND, missing +
                                          ". A path is nvme://<file or device>/<name>; `rawduck format " +
                                          meant + " --size 8G` or CALL nvme_format('" + meant +
                                          "', size := '8G') makes a volume in a file" +
                                          (meant == candidate ? "." : ", whose folder has to be there."));
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
    const auto components = SplitAtSlashes(path);
    if (std::find(components.begin(), components.end(), "..") != components.end()) {
        throw Error(ErrorCode::INVALID, path + ": \"..\" is not allowed in the path of a file on a volume");
    }
    return {components.begin(), components.end()};
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
    if (!components.empty() && rest[0] != '/' && HasNoPath(components[0])) {
        return SplitNamedPath(path, components);
    }
    if (rest.empty() || rest[0] != '/') {
        ThrowRelative(path, rest);
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
            const int error_number = errno;
            ThrowNoTarget(path, candidate, MeantTarget(components, i), error_number);
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

std::string ResolvedPath(const std::string &path) {
    std::deque<std::string> ahead = SplitAtSlashes(path);
    std::vector<std::string> resolved;
    size_t links = 0;
    while (!ahead.empty()) {
        const std::string component = ahead.front();
        ahead.pop_front();
        if (component == "..") {
            if (!resolved.empty()) {
                resolved.pop_back();
            }
            continue;
        }
        resolved.push_back(component);
        std::string link;
        if (links < LINKS_MAX && ReadLink("/" + JoinComponents(resolved, 0), link)) {
            links++;
            resolved.pop_back();
            if (link[0] == '/') {
                resolved.clear();
            }
            const auto leads = SplitAtSlashes(link);
            ahead.insert(ahead.begin(), leads.begin(), leads.end());
        }
    }
    return "/" + JoinComponents(resolved, 0);
}

std::string CanonicalVolumePath(const std::string &path) {
    VolumePath parts;
    try {
        parts = SplitVolumePath(path);
    } catch (const Error &error) {
        if (error.Code() == ErrorCode::INVALID) {
            throw;
        }
        // Opening it explains what is missing.
        return VOLUME_SCHEME + ResolvedPath(path.substr(std::strlen(VOLUME_SCHEME)));
    }
    if (!HasNoPath(parts.target)) {
        parts.target = ResolvedPath(parts.target);
    }
    return parts.ToString();
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
