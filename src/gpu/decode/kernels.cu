// What NVRTC compiles. Every kernel: one thread block of BLOCK lanes for each item. At least one block at a time on a
// multiprocessor is all that is asked for: otherwise the compiler spills registers to save them for more.
#include "gpu/decode/kernels.hpp"

namespace rawduck::gpu {

#define GPU_KERNEL(NAME, CODEC, KIND, PHASE, DECODER, FUNCTION)                                              \
    extern "C" __global__ void __launch_bounds__(BLOCK, 1)                                                      \
        NAME(const SegmentTask *tasks, const GroupItem *items) {                                             \
        __shared__ DECODER::Shared shared;                                                                   \
        DECODER::FUNCTION(tasks[items[blockIdx.x].task], items[blockIdx.x].group, shared);                   \
    }

GPU_KERNELS(GPU_KERNEL)

extern "C" __global__ void __launch_bounds__(BLOCK, 1) checksum_blocks(const ChecksumTask *tasks) {
    __shared__ Checksums::Shared shared;
    Checksums::Check(tasks[blockIdx.x], shared);
}

} // namespace rawduck::gpu
