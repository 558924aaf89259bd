//! Paths rados://<pool>/<object>. The object's name may contain slashes, which have no meaning to Ceph.
#pragma once

#include <string>

namespace rawduck_ceph {

constexpr const char *RADOS_SCHEME = "rados://";

bool IsRadosPath(const std::string &path);

struct RadosPath {
    std::string pool;
    std::string object; //!< empty when the path names the pool

    //! Throws Error INVALID when the scheme or the pool is missing.
    static RadosPath Parse(const std::string &path);
    //! Throws Error INVALID also when the object is missing.
    static RadosPath ParseObject(const std::string &path);

    //! Whether rules for paths of files leave the object's name as it is: no part between slashes is empty, "." or
    //! "..", and there is no "\", which DuckDB takes for a slash.
    bool HasPlainName() const;
    std::string ToString() const;
};

} // namespace rawduck_ceph
