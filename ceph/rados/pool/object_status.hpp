//! What an object was when it was looked at.
#pragma once

#include <cstdint>

namespace rawduck_ceph {

struct ObjectStatus {
    uint64_t size = 0;      //!< bytes
    int64_t modified_s = 0; //!< seconds since 1970-01-01 UTC
    uint64_t version = 0;   //!< grows with every change of the object
};

} // namespace rawduck_ceph
