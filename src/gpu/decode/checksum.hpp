#pragma once
//! The checksum that DuckDB keeps before each block of a file. DuckDB: src/common/checksum.cpp. That of the words is used
//! alone, because the bytes of a block are a multiple of 8.
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

struct Checksums {
    struct Shared {
        u64 sums[BLOCK];
    };
    //! Words that a thread block adds up: a block of a file has many, so that all of a GPU takes part.
    static constexpr u32 PART_WORDS = 8 * BLOCK;

    static GPU_FUNCTION u64 Parts(u64 byte_count) {
        const u64 words = byte_count / 8;
        return words == 0 ? 1 : (words + PART_WORDS - 1) / PART_WORDS;
    }

    static GPU_FUNCTION void Check(const ChecksumTask &task, u32 part, Shared &shared) {
        const u64 words = task.byte_count / 8;
        if (words == 0 || task.byte_count % 8 != 0) {
            GPU_LANES(lane) {
                if (lane == 0 && part == 0) {
                    XorInto(task.difference, 1);
                }
            }
            return;
        }
        const u64 first = static_cast<u64>(part) * PART_WORDS;
        GPU_LANES(lane) {
            shared.sums[lane] =
                Sum(task, first + lane, words < first + PART_WORDS ? words : first + PART_WORDS);
        }
        for (u32 half = BLOCK / 2; half > 0; half /= 2) {
            GPU_SYNC();
            GPU_EACH(i, half) {
                shared.sums[i] ^= shared.sums[i + half];
            }
        }
        GPU_LANES(lane) {
            if (lane == 0) {
                XorInto(task.difference, shared.sums[0]);
            }
        }
    }

  private:
    //! Of every BLOCK-th word. The first word of all is the checksum.
    static GPU_FUNCTION u64 Sum(const ChecksumTask &task, u64 begin, u64 end) {
        constexpr u64 START = 5381, FACTOR = 0xbf58476d1ce4e5b9;
        const Bytes bytes(task.block, task.byte_count);
        u64 sum = 0;
        if (begin == 0) {
            sum = START ^ bytes.Word(0);
            begin += BLOCK;
        }
        if (reinterpret_cast<u64>(task.block) % 8 == 0) {
            const u64 *aligned = reinterpret_cast<const u64 *>(task.block);
            for (u64 i = begin; i < end; i += BLOCK) {
                sum ^= aligned[i] * FACTOR;
            }
            return sum;
        }
        GPU_KEEP_LOOP for (u64 i = begin; i < end; i += BLOCK) {
            sum ^= bytes.Word(8 * i) * FACTOR;
        }
        return sum;
    }
};

} // namespace rawduck::gpu
