//! rados://<pool>/<object>: the object's name may have slashes, which mean nothing to Ceph.
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
    //! The same, for what needs an object.
    static RadosPath ParseObject(const std::string &path);

    std::string ToString() const;
};

} // namespace rawduck_ceph
