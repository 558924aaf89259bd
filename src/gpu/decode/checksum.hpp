#pragma once
//! The checksum that DuckDB keeps before each block of a file. DuckDB: src/common/checksum.cpp. That of the words is used
//! alone, because the bytes of a block are a multiple of 8.
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

struct Checksums {
    struct Shared {
        u64 parts[BLOCK];
    };

    static GPU_FUNCTION void Check(const ChecksumTask &task, Shared &shared) {
        constexpr u64 START = 5381, FACTOR = 0xbf58476d1ce4e5b9;
        const Bytes bytes(task.block, task.byte_count);
        if (task.byte_count < 8 || task.byte_count % 8 != 0) {
            SetBits(task.error, MALFORMED);
            return;
        }
        GPU_LANES(lane) {
            shared.parts[lane] = 0;
        }
        GPU_EACH(i, static_cast<u32>(task.byte_count / 8 - 1)) {
            shared.parts[i % BLOCK] ^= bytes.Word(8 + 8ull * i) * FACTOR; // each lane has a part of its own
        }
        for (u32 half = BLOCK / 2; half > 0; half /= 2) {
            GPU_SYNC();
            GPU_EACH(i, half) {
                shared.parts[i] ^= shared.parts[i + half];
            }
        }
        GPU_LANES(lane) {
            if (lane == 0 && (START ^ shared.parts[0]) != bytes.Word(0)) {
                SetBits(task.error, MALFORMED);
            }
        }
    }
};

} // namespace rawduck::gpu
