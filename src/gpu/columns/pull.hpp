#pragma once
//! Copies of many pieces at once, also from pinned memory of the host, which the device reads by itself. Told to copy one
//! piece after the other, a copy engine needs some 3 us for each, in which a link of PCIe 5 moves half of a block; and what is
//! small waits there behind what is large.
#include "gpu/columns/gather.hpp"

namespace rawduck::gpu {

//! To and from addresses that are multiples of PULL_LINE.
struct PullPiece {
    const u8 *from;
    u8 *to;
    u64 bytes;
};

constexpr u32 PULL_PIECES = 128; // arguments of a kernel have at most 4 KiB
constexpr u32 PULL_LINE = 16;
constexpr u32 PULL_PART = PULL_LINE * 4 * BLOCK; //!< that a thread block copies at a time

struct PullArguments {
    PullPiece pieces[PULL_PIECES];
    u32 count;
    u32 groups; //!< thread blocks, which take turns
};

struct PulledPieces {
    using Arguments = PullArguments;
    using Shared = NoShared;

    struct alignas(PULL_LINE) Line {
        u64 low, high;
    };
    static constexpr u32 LINES_EACH = 4; //!< that a lane has on their way at a time
    static constexpr u32 LINES = BLOCK * LINES_EACH;

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 group, Shared &) {
        u32 turn = group; // how many parts to let pass before the next one of this thread block
        for (u32 i = 0; i < arguments.count; i++) {
            const PullPiece &piece = arguments.pieces[i];
            const u64 lines = piece.bytes / PULL_LINE, parts = (lines + LINES - 1) / LINES;
            u64 part = turn;
            for (; part < parts; part += arguments.groups) {
                const u64 left = lines - part * LINES;
                Copy(reinterpret_cast<const Line *>(piece.from) + part * LINES,
                     reinterpret_cast<Line *>(piece.to) + part * LINES,
                     static_cast<u32>(left < LINES ? left : LINES));
            }
            turn = static_cast<u32>(part - parts);
            if (group == 0) {
                GPU_EACH(rest, static_cast<u32>(piece.bytes % PULL_LINE)) {
                    piece.to[lines * PULL_LINE + rest] = piece.from[lines * PULL_LINE + rest];
                }
            }
        }
    }

    static GPU_FUNCTION void Copy(const Line *from, Line *to, u32 lines) {
        if (lines == LINES) {
            GPU_LANES(lane) {
                Line on_their_way[LINES_EACH];
                for (u32 i = 0; i < LINES_EACH; i++) {
                    on_their_way[i] = from[i * BLOCK + lane];
                }
                for (u32 i = 0; i < LINES_EACH; i++) {
                    to[i * BLOCK + lane] = on_their_way[i];
                }
            }
            return;
        }
        GPU_EACH(i, lines) {
            to[i] = from[i];
        }
    }
};

} // namespace rawduck::gpu
