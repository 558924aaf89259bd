#include "ceph/rados/connection/rados_path.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck_ceph {

using rawduck::Error;
using rawduck::ErrorCode;

bool IsRadosPath(const std::string &path) {
    return path.compare(0, std::strlen(RADOS_SCHEME), RADOS_SCHEME) == 0;
}

RadosPath RadosPath::Parse(const std::string &path) {
    const size_t start = std::strlen(RADOS_SCHEME);
    const size_t slash = IsRadosPath(path) ? path.find('/', start) : 0;
    const size_t end = slash == std::string::npos ? path.size() : slash;
    if (end <= start) {
        throw Error(ErrorCode::INVALID, path + ": an object is named rados://<pool>/<object>");
    }
    return {path.substr(start, end - start), end == path.size() ? "" : path.substr(end + 1)};
}

RadosPath RadosPath::ParseObject(const std::string &path) {
    RadosPath result = Parse(path);
    if (result.object.empty()) {
        throw Error(ErrorCode::INVALID, path + ": this names a pool; an object in it is named " +
                                            RADOS_SCHEME + result.pool + "/<object>");
    }
    return result;
}

bool RadosPath::HasPlainName() const {
    for (size_t start = 0; start <= object.size();) {
        const size_t end = std::min(object.find('/', start), object.size());
        const std::string part = object.substr(start, end - start);
        if (part.empty() || part == "." || part == ".." || part.find('\\') != std::string::npos) {
            return false;
        }
        start = end + 1;
    }
    return true;
}

std::string RadosPath::ToString() const {
    return RADOS_SCHEME + pool + "/" + object;
}

} // namespace rawduck_ceph
