#pragma once
//! Rows of decoded columns, put one behind the other. `rows` lists the wanted ones; null: all from `first` on.
#include "gpu/decode/lanes.hpp"

namespace rawduck::gpu {

//! Rows, or characters, of one thread block.
constexpr u32 COLUMN_GROUP = 2048;

GPU_FUNCTION u32 GroupLength(u64 count, u64 group, u32 most) {
    const u64 left = count - group * most;
    return static_cast<u32>(left < most ? left : most);
}

struct NoShared {};

struct GatherArguments {
    const void *from;
    const u32 *rows; //!< not null
    u64 first;       //!< place in `rows`
    u64 count;
    void *to;
};

//! Values of a width. T is a number of that width.
template <class T> struct GatherValues {
    using Arguments = GatherArguments;
    using Shared = NoShared;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &) {
        const T *from = static_cast<const T *>(arguments.from);
        T *to = static_cast<T *>(arguments.to);
        GPU_EACH(i, GroupLength(arguments.count, group, COLUMN_GROUP)) {
            const u64 index = static_cast<u64>(group) * COLUMN_GROUP + i;
            to[index] = from[arguments.rows[arguments.first + index]];
        }
    }
};

struct StringArguments {
    const u64 *offsets;
    const u8 *chars;
    const u32 *rows; //!< null: all
    u64 first;
    u64 count;
    u64 byte_limit;        //!< of FitStrings
    const u64 *to_offsets; //!< count + 1: where each wanted string starts, counted from the first wanted one
    u32 *lengths;
    i32 *to; //!< to[0] is where the first wanted one starts in to_chars
    u8 *to_chars;
    u64 *result; //!< of FitStrings: rows and bytes
};

GPU_FUNCTION u64 WantedRow(const StringArguments &arguments, u64 index) {
    return arguments.rows ? arguments.rows[arguments.first + index] : arguments.first + index;
}

//! Bytes of each wanted string.
struct StringLengths {
    using Arguments = StringArguments;
    using Shared = NoShared;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &) {
        GPU_EACH(i, GroupLength(arguments.count, group, COLUMN_GROUP)) {
            const u64 index = static_cast<u64>(group) * COLUMN_GROUP + i;
            const u64 row = WantedRow(arguments, index);
            arguments.lengths[index] = static_cast<u32>(arguments.offsets[row + 1] - arguments.offsets[row]);
        }
    }
};

//! One lane: the most wanted strings, from the first one on, that have at most `byte_limit` bytes together. Where rows
//! are listed, `to_offsets` has their sums.
struct FitStrings {
    using Arguments = StringArguments;
    using Shared = NoShared;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32, Shared &) {
        GPU_LANES(lane) {
            if (lane == 0) {
                const u64 *sums = arguments.rows ? arguments.to_offsets : arguments.offsets + arguments.first;
                u64 fitting = 0, beyond = arguments.count + 1;
                while (beyond - fitting > 1) {
                    const u64 middle = fitting + (beyond - fitting) / 2;
                    (sums[middle] - sums[0] <= arguments.byte_limit ? fitting : beyond) = middle;
                }
                arguments.result[0] = fitting;
                arguments.result[1] = sums[fitting] - sums[0];
            }
        }
    }
};

//! Offsets of 32 bits behind to[0].
struct StringOffsets {
    using Arguments = StringArguments;
    using Shared = NoShared;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &) {
        const u64 *sums = arguments.rows ? arguments.to_offsets : arguments.offsets + arguments.first;
        GPU_EACH(i, GroupLength(arguments.count, group, COLUMN_GROUP)) {
            const u64 index = static_cast<u64>(group) * COLUMN_GROUP + i + 1;
            arguments.to[index] = arguments.to[0] + static_cast<i32>(sums[index] - sums[0]);
        }
    }
};

//! Characters of listed rows, a lane for each string.
struct ListedCharacters {
    using Arguments = StringArguments;
    using Shared = NoShared;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &) {
        GPU_EACH(i, GroupLength(arguments.count, group, COLUMN_GROUP)) {
            const u64 index = static_cast<u64>(group) * COLUMN_GROUP + i;
            const u64 row = WantedRow(arguments, index);
            const u64 length = arguments.offsets[row + 1] - arguments.offsets[row];
            u8 *to = arguments.to_chars + arguments.to[index];
            for (u64 byte = 0; byte < length; byte++) {
                to[byte] = arguments.chars[arguments.offsets[row] + byte];
            }
        }
    }
};

//! Characters of rows that lie one behind the other: a lane for each byte, as their characters do, too.
struct AllCharacters {
    using Arguments = StringArguments;
    using Shared = NoShared;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &) {
        const u64 begin = arguments.offsets[arguments.first];
        const u64 bytes = arguments.offsets[arguments.first + arguments.count] - begin;
        u8 *to = arguments.to_chars + arguments.to[0];
        GPU_EACH(i, GroupLength(bytes, group, COLUMN_GROUP)) {
            const u64 index = static_cast<u64>(group) * COLUMN_GROUP + i;
            to[index] = arguments.chars[begin + index];
        }
    }
};

} // namespace rawduck::gpu
