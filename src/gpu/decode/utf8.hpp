#pragma once
//! Text: what is VARCHAR is UTF-8, and what takes a batch relies on it.
#include "gpu/decode/lanes.hpp"

namespace rawduck::gpu {

//! Whether bytes are UTF-8: shortest forms, no surrogates, nothing beyond U+10FFFF.
GPU_FUNCTION bool IsUtf8(const u8 *data, u64 count) {
    u32 left = 0;                      // bytes that the character still needs
    u32 lowest = 0x80, highest = 0xbf; // of the next one of them
    for (u64 i = 0; i < count; i++) {
#ifndef __CUDACC__
        u64 word;
        while (left == 0 && count - i >= sizeof(word)) {
            __builtin_memcpy(&word, data + i, sizeof(word));
            if (word & 0x8080808080808080ull) {
                break;
            }
            i += sizeof(word);
        }
        if (i == count) {
            break;
        }
#endif
        const u32 byte = data[i];
        if (left > 0) {
            if (byte < lowest || byte > highest) {
                return false;
            }
            lowest = 0x80;
            highest = 0xbf;
            left--;
        } else if (byte >= 0x80) {
            if (byte < 0xc2 || byte > 0xf4) {
                return false;
            }
            left = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
            lowest = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
            highest = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
        }
    }
    return left == 0;
}

} // namespace rawduck::gpu
