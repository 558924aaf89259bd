#include "gpu/decode/decode.hpp"

#include "common/invariant.hpp"
#include "gpu/decode/kernels.hpp"

namespace rawduck::gpu {

namespace {

struct Kernel {
    Codec codec;
    Kind kind;
    Phase phase;
    const char *name;
    u32 group_rows;
    void (*run)(const SegmentTask &task, u32 group);
    u64 (*scratch_bytes)(const SegmentTask &task);
};

#define GPU_HOST_KERNEL(NAME, CODEC, KIND, PHASE, DECODER, FUNCTION)                                         \
    {Codec::CODEC,                                                                                           \
     Kind::KIND,                                                                                             \
     Phase::PHASE,                                                                                           \
     #NAME,                                                                                                  \
     DECODER::GROUP_ROWS,                                                                                    \
     [](const SegmentTask &task, u32 group) {                                                                \
         DECODER::Shared shared;                                                                             \
         DECODER::FUNCTION(task, group, shared);                                                             \
     },                                                                                                      \
     DECODER::ScratchBytes},

const Kernel KERNELS[] = {GPU_KERNELS(GPU_HOST_KERNEL)};

const Kernel *FindKernel(Codec codec, Kind kind, Phase phase) {
    kind = KernelKind(codec, kind);
    for (const Kernel &kernel : KERNELS) {
        if (kernel.codec == codec && kernel.kind == kind && kernel.phase == phase) {
            return &kernel;
        }
    }
    return nullptr;
}

} // namespace

bool CanDecode(Codec codec, Kind kind) {
    return FindKernel(codec, kind, Phase::VALUES) != nullptr;
}

const char *KernelName(Codec codec, Kind kind, Phase phase) {
    const Kernel *kernel = FindKernel(codec, kind, phase);
    return kernel ? kernel->name : nullptr;
}

u64 ScratchBytes(const SegmentTask &task) {
    const Kernel *kernel = FindKernel(task.codec, task.kind, Phase::PREPARE);
    return kernel ? kernel->scratch_bytes(task) : 0;
}

u32 GroupCount(const SegmentTask &task, Phase phase) {
    RAWDUCK_INVARIANT(task.row_count > 0 && task.row_count <= task.segment_rows &&
                          task.first_row <= task.segment_rows - task.row_count,
                      "wanted rows are rows of the segment");
    const Kernel *kernel = FindKernel(task.codec, task.kind, phase);
    if (!kernel) {
        return 0;
    }
    if (phase == Phase::PREPARE) {
        return 1;
    }
    const u32 last_row = task.first_row + task.row_count - 1;
    return last_row / kernel->group_rows - task.first_row / kernel->group_rows + 1;
}

void LaunchOnHost(Codec codec, Kind kind, Phase phase, const SegmentTask *tasks, const GroupItem *items,
                  u64 item_count) {
    const Kernel *kernel = FindKernel(codec, kind, phase);
    RAWDUCK_INVARIANT(kernel || item_count == 0, "only what CanDecode names takes part in a phase");
    for (u64 i = 0; i < item_count; i++) {
        kernel->run(tasks[items[i].task], items[i].group);
    }
}

u32 ChecksumParts(u64 byte_count) {
    return static_cast<u32>(Checksums::Parts(byte_count));
}

void LaunchChecksumsOnHost(const ChecksumTask *tasks, u64 task_count) {
    Checksums::Shared shared;
    for (u64 i = 0; i < task_count; i++) {
        for (u32 part = 0; part < ChecksumParts(tasks[i].byte_count); part++) {
            Checksums::Check(tasks[i], part, shared);
        }
    }
}

} // namespace rawduck::gpu
