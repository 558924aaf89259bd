//! A part of a request.
#pragma once

#include "io/request/placement.hpp"

#include <cstdint>

namespace rawduck {

//! Element of a scatter list: contiguous on the device and in memory.
struct Segment {
    uint64_t device_offset = 0; //!< bytes, a multiple of the LBA size
    char *data = nullptr;       //!< any alignment; bounced when the device cannot take it
    uint64_t length = 0;        //!< bytes, a multiple of the LBA size
    PlacementClass placement = PlacementClass::DATABASE; //!< what the data is
};

} // namespace rawduck
