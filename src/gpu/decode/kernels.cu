// What NVRTC compiles. Every kernel: one thread block of BLOCK lanes for each item.
#include "gpu/decode/kernels.hpp"

namespace rawduck::gpu {

#define GPU_KERNEL(NAME, CODEC, KIND, PHASE, DECODER, FUNCTION)                                              \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                      \
        NAME(const SegmentTask *tasks, const GroupItem *items) {                                             \
        __shared__ DECODER::Shared shared;                                                                   \
        DECODER::FUNCTION(tasks[items[blockIdx.x].task], items[blockIdx.x].group, shared);                   \
    }

GPU_KERNELS(GPU_KERNEL)

extern "C" __global__ void __launch_bounds__(BLOCK) checksum_blocks(const ChecksumTask *tasks) {
    __shared__ Checksums::Shared shared;
    Checksums::Check(tasks[blockIdx.x], shared);
}

} // namespace rawduck::gpu
