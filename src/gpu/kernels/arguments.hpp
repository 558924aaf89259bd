#pragma once
//! What the kernels that decode are launched with.
#include "gpu/decode/task.hpp"

namespace rawduck::gpu {

struct DecodeArguments {
    const SegmentTask *tasks;
    const GroupItem *items; //!< one for each thread block
};

struct ChecksumArguments {
    const ChecksumTask *tasks;
    u32 parts; //!< of each task, a thread block for each of them
};

} // namespace rawduck::gpu
