#pragma once
//! Decoding DuckDB's segments: what a device is told, and the same in this process. Thread-safe; nothing throws.
#include "gpu/decode/task.hpp"

namespace rawduck::gpu {

//! Whether there are kernels for it.
bool CanDecode(Codec codec, Kind kind);

//! The name of the kernel in kernels.cu, of type void(const SegmentTask *tasks, const GroupItem *items), with a thread
//! block of BLOCK lanes for each item. Null where the codec has no such phase or cannot be decoded.
const char *KernelName(Codec codec, Kind kind, Phase phase);

//! The kernel void(const ChecksumTask *tasks, u32 parts), with `parts` thread blocks of BLOCK lanes for each task.
constexpr const char *CHECKSUM_KERNEL = "checksum_blocks";
//! Of a block of so many bytes.
u32 ChecksumParts(u64 byte_count);

//! A multiple of 8. Follows from what the task says of the segment, not from the segment's bytes.
u64 ScratchBytes(const SegmentTask &task);

//! Thread blocks that the task takes in a phase; 0 where it takes no part in it.
u32 GroupCount(const SegmentTask &task, Phase phase);

//! Runs the kernel as loops in this thread. All items are of tasks of this codec and kind.
void LaunchOnHost(Codec codec, Kind kind, Phase phase, const SegmentTask *tasks, const GroupItem *items,
                  u64 item_count);

void LaunchChecksumsOnHost(const ChecksumTask *tasks, u64 task_count);

} // namespace rawduck::gpu
