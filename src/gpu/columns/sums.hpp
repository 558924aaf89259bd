#pragma once
//! Sums of all numbers before each: where strings start, and which rows are listed. Three kernels, one after the other:
//! the sum of each group of numbers, the sums of groups before each group, and what each number gets.
#include "gpu/decode/lanes.hpp"

namespace rawduck::gpu {

struct SumArguments {
    const void *numbers; //!< u32, or bytes that are 0 or 1
    u64 count;
    u64 *groups; //!< SumGroups(count) + 1 of them; the last one becomes the sum of all
    void *to;    //!< u64 offsets, count + 1 of them; or u32 numbers of rows, with room for count
};

constexpr u32 SUM_LANE_VALUES = 8;
constexpr u32 SUM_GROUP_VALUES = BLOCK * SUM_LANE_VALUES;

GPU_FUNCTION u64 SumGroups(u64 count) {
    return (count + SUM_GROUP_VALUES - 1) / SUM_GROUP_VALUES;
}

struct LaneSums {
    u64 sums[BLOCK];
};

//! The sums of what each lane has of a group, and of the lanes before it.
template <class T> GPU_FUNCTION void SumLanes(const SumArguments &arguments, u64 first, LaneSums &shared) {
    const T *numbers = static_cast<const T *>(arguments.numbers);
    GPU_LANES(lane) {
        u64 sum = 0;
        for (u32 i = 0; i < SUM_LANE_VALUES; i++) {
            const u64 index = first + lane * SUM_LANE_VALUES + i;
            sum += index < arguments.count ? numbers[index] : 0;
        }
        shared.sums[lane] = sum;
    }
    SumUp(shared.sums);
}

template <class T> struct GroupSums {
    using Arguments = SumArguments;
    using Shared = LaneSums;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &shared) {
        SumLanes<T>(arguments, static_cast<u64>(group) * SUM_GROUP_VALUES, shared);
        GPU_LANES(lane) {
            if (lane == BLOCK - 1) {
                arguments.groups[group] = shared.sums[lane];
            }
        }
    }
};

//! One block: groups become the sums of the groups before them.
struct GroupStarts {
    using Arguments = SumArguments;
    using Shared = LaneSums;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32, Shared &shared) {
        const u64 groups = SumGroups(arguments.count);
        u64 before = 0;
        for (u64 first = 0; first < groups; first += BLOCK) {
            GPU_LANES(lane) {
                shared.sums[lane] = first + lane < groups ? arguments.groups[first + lane] : 0;
            }
            SumUp(shared.sums);
            GPU_LANES(lane) {
                if (first + lane < groups) {
                    arguments.groups[first + lane] = before + (lane > 0 ? shared.sums[lane - 1] : 0);
                }
            }
            before += shared.sums[BLOCK - 1];
            GPU_SYNC(); // before the next turn writes to `shared`
        }
        GPU_LANES(lane) {
            if (lane == 0) {
                arguments.groups[groups] = before;
            }
        }
    }
};

//! Offsets of strings, from their lengths.
struct WriteOffsets {
    using Arguments = SumArguments;
    using Shared = LaneSums;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &shared) {
        const u64 first = static_cast<u64>(group) * SUM_GROUP_VALUES;
        const u32 *lengths = static_cast<const u32 *>(arguments.numbers);
        u64 *offsets = static_cast<u64 *>(arguments.to);
        SumLanes<u32>(arguments, first, shared);
        GPU_LANES(lane) {
            u64 sum = arguments.groups[group] + (lane > 0 ? shared.sums[lane - 1] : 0);
            if (first + lane == 0) {
                offsets[0] = 0;
            }
            for (u32 i = 0; i < SUM_LANE_VALUES; i++) {
                const u64 index = first + lane * SUM_LANE_VALUES + i;
                if (index < arguments.count) {
                    sum += lengths[index];
                    offsets[index + 1] = sum;
                }
            }
        }
    }
};

//! Numbers of the rows whose byte is 1.
struct WriteRows {
    using Arguments = SumArguments;
    using Shared = LaneSums;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &shared) {
        const u64 first = static_cast<u64>(group) * SUM_GROUP_VALUES;
        const u8 *bytes = static_cast<const u8 *>(arguments.numbers);
        u32 *rows = static_cast<u32 *>(arguments.to);
        SumLanes<u8>(arguments, first, shared);
        GPU_LANES(lane) {
            u64 listed = arguments.groups[group] + (lane > 0 ? shared.sums[lane - 1] : 0);
            for (u32 i = 0; i < SUM_LANE_VALUES; i++) {
                const u64 index = first + lane * SUM_LANE_VALUES + i;
                if (index < arguments.count && bytes[index]) {
                    rows[listed] = static_cast<u32>(index);
                    listed++;
                }
            }
        }
    }
};

} // namespace rawduck::gpu
