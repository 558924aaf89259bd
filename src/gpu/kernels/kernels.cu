// What NVRTC compiles. Every kernel: one thread block of BLOCK lanes for each group, and one structure of arguments. At
// least one block at a time on a multiprocessor is all that is asked for: otherwise the compiler spills registers to save
// them for more.
#include "gpu/columns/kernels.hpp"
#include "gpu/decode/kernels.hpp"
#include "gpu/kernels/arguments.hpp"
#include "gpu/ring/asked_reads.hpp"

namespace rawduck::gpu {

#define GPU_DECODE_KERNEL(NAME, CODEC, KIND, PHASE, DECODER, FUNCTION)                                       \
    extern "C" __global__ void __launch_bounds__(BLOCK, 1) NAME(DecodeArguments arguments) {                 \
        __shared__ DECODER::Shared shared;                                                                   \
        const GroupItem item = arguments.items[blockIdx.x];                                                  \
        DECODER::FUNCTION(arguments.tasks[item.task], item.group, shared);                                   \
    }

GPU_KERNELS(GPU_DECODE_KERNEL)

#define GPU_COLUMN_KERNEL(NAME, ...)                                                                         \
    extern "C" __global__ void __launch_bounds__(BLOCK, 1) NAME(__VA_ARGS__::Arguments arguments) {          \
        __shared__ __VA_ARGS__::Shared shared;                                                               \
        __VA_ARGS__::Run(arguments, blockIdx.x, shared);                                                     \
    }

GPU_COLUMN_KERNELS(GPU_COLUMN_KERNEL)
GPU_RING_KERNELS(GPU_COLUMN_KERNEL)

extern "C" __global__ void __launch_bounds__(BLOCK, 1) checksum_blocks(ChecksumArguments arguments) {
    __shared__ Checksums::Shared shared;
    Checksums::Check(arguments.tasks[blockIdx.x / arguments.parts], blockIdx.x % arguments.parts, shared);
}

} // namespace rawduck::gpu
