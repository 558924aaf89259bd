#include "gpu/kernels/host_kernels.hpp"

#include "gpu/columns/kernels.hpp"
#include "gpu/decode/kernels.hpp"
#include "gpu/ring/asked_reads.hpp"

#include <cstring>
#include <iterator>

namespace rawduck::gpu {
namespace {

#define GPU_HOST_DECODE_KERNEL(NAME, CODEC, KIND, PHASE, DECODER, FUNCTION)                                  \
    {#NAME, sizeof(DecodeArguments), [](const void *given, u32 block) {                                      \
         const auto &arguments = *static_cast<const DecodeArguments *>(given);                               \
         const GroupItem item = arguments.items[block];                                                      \
         DECODER::Shared shared;                                                                             \
         DECODER::FUNCTION(arguments.tasks[item.task], item.group, shared);                                  \
     }},

#define GPU_HOST_COLUMN_KERNEL(NAME, ...)                                                                    \
    {#NAME, sizeof(__VA_ARGS__::Arguments), [](const void *given, u32 block) {                               \
         __VA_ARGS__::Shared shared;                                                                         \
         __VA_ARGS__::Run(*static_cast<const __VA_ARGS__::Arguments *>(given), block, shared);               \
     }},

const HostKernel KERNELS[] = {GPU_KERNELS(GPU_HOST_DECODE_KERNEL) GPU_COLUMN_KERNELS(
    GPU_HOST_COLUMN_KERNEL) GPU_RING_KERNELS(GPU_HOST_COLUMN_KERNEL){
    "checksum_blocks", sizeof(ChecksumArguments), [](const void *given, u32 block) {
        Checksums::Shared shared;
        const auto &arguments = *static_cast<const ChecksumArguments *>(given);
        Checksums::Check(arguments.tasks[block / arguments.parts], block % arguments.parts, shared);
    }}};

} // namespace

const HostKernel *FindHostKernel(const char *name) {
    for (const HostKernel &kernel : KERNELS) {
        if (std::strcmp(kernel.name, name) == 0) {
            return &kernel;
        }
    }
    return nullptr;
}

const HostKernel *HostKernels(u64 &count) {
    count = std::size(KERNELS);
    return KERNELS;
}

} // namespace rawduck::gpu
