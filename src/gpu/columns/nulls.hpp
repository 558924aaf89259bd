#pragma once
//! Bytes that are 0 or 1, as bits; and values in place of NULL.
#include "gpu/columns/gather.hpp"

namespace rawduck::gpu {

struct BitArguments {
    const u8 *bytes;
    u64 count;
    u8 *bits;
    u64 *zeros; //!< added to; null: not wanted
};

struct PackedBits {
    using Arguments = BitArguments;
    struct Shared {
        u64 zeros[BLOCK];
    };

    //! A group is COLUMN_GROUP rows: every lane makes one byte.
    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &shared) {
        static_assert(COLUMN_GROUP == 8 * BLOCK);
        GPU_LANES(lane) {
            const u64 first = static_cast<u64>(group) * COLUMN_GROUP + 8 * lane;
            u32 bits = 0, zeros = 0;
            for (u32 i = 0; i < 8 && first + i < arguments.count; i++) {
                const u32 bit = arguments.bytes[first + i];
                bits |= bit << i;
                zeros += 1 - bit;
            }
            if (first < arguments.count) {
                arguments.bits[first / 8] = static_cast<u8>(bits);
            }
            shared.zeros[lane] = zeros;
        }
        SumUp(shared.zeros);
        GPU_LANES(lane) {
            if (lane == BLOCK - 1 && arguments.zeros && shared.zeros[lane] > 0) {
                AddTo(arguments.zeros, shared.zeros[lane]);
            }
        }
    }
};

struct ReplaceArguments {
    const u8 *valid;
    u64 count;
    u64 value; //!< its lowest bytes
    u64 width; //!< 1, 2, 4 or 8
    u8 *values;
};

struct ReplacedNulls {
    using Arguments = ReplaceArguments;
    using Shared = NoShared;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &) {
        GPU_EACH(i, GroupLength(arguments.count, group, COLUMN_GROUP)) {
            const u64 row = static_cast<u64>(group) * COLUMN_GROUP + i;
            if (!arguments.valid[row]) {
                u8 *to = arguments.values + row * arguments.width;
                for (u32 byte = 0; byte < arguments.width; byte++) {
                    to[byte] = static_cast<u8>(arguments.value >> (8 * byte));
                }
            }
        }
    }
};

} // namespace rawduck::gpu
