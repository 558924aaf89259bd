//! The size and version of an object at the time of a request.
#pragma once

#include <cstdint>

namespace rawduck_ceph {

struct ObjectStatus {
    uint64_t size = 0;       //!< bytes
    int64_t modified_s = 0;  //!< seconds since 1970-01-01 UTC
    int64_t modified_ns = 0; //!< nanoseconds of the second, where RadosPool::Examine has asked for it
    uint64_t version = 0;    //!< increases with each change of the object
};

} // namespace rawduck_ceph
