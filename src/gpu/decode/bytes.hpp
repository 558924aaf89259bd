#pragma once
//! The bytes of a segment. Nothing outside them is read, whatever offset is asked for: bytes behind the end are 0.
//! Decoders check offsets nonetheless, because what is not there is an error.
#include "gpu/decode/task.hpp"
#include "gpu/decode/utf8.hpp"

namespace rawduck::gpu {

class Bytes {
  public:
    GPU_FUNCTION Bytes(const u8 *data, u64 count) : data(data), count(count) {}
    explicit GPU_FUNCTION Bytes(const SegmentTask &task) : Bytes(task.bytes, task.byte_count) {}

    GPU_FUNCTION u64 Count() const { return count; }

    GPU_FUNCTION bool Has(u64 offset, u64 length) const {
        return offset <= count && length <= count - offset;
    }

    GPU_FUNCTION u8 Byte(u64 offset) const { return offset < count ? data[offset] : 0; }

    //! The 8 bytes at `offset`, little endian.
    GPU_FUNCTION u64 Word(u64 offset) const {
        if (offset >= count || count - offset < 8) {
            return LastWord(offset);
        }
        u64 word;
#ifdef __CUDACC__
        const u32 misaligned = reinterpret_cast<u64>(data + offset) & 7;
        if (misaligned > offset || (misaligned && count - offset < 16 - misaligned)) {
            return LastWord(offset);
        }
        const u64 *aligned = reinterpret_cast<const u64 *>(data + offset - misaligned);
        word = aligned[0] >> (8 * misaligned);
        if (misaligned) {
            word |= aligned[1] << (64 - 8 * misaligned);
        }
#else
        __builtin_memcpy(&word, data + offset, sizeof(word));
#endif
        return word;
    }

    template <class T> GPU_FUNCTION T Load(u64 offset) const { return static_cast<T>(Word(offset)); }

    //! At most 64 bits of a stream that starts at byte `start`: those from `bit` on.
    GPU_FUNCTION u64 Bits(u64 start, u64 bit, u32 width) const {
        if (width == 0) {
            return 0;
        }
        const u64 offset = start + (bit >> 3);
        const u32 shift = bit & 7;
        u64 bits = Word(offset) >> shift;
        if (shift + width > 64) {
            bits |= static_cast<u64>(Byte(offset + 8)) << (64 - shift);
        }
        return width == 64 ? bits : bits & ((1ull << width) - 1);
    }

    //! Number `index` of those that are packed with `width` bits each from byte `start` on.
    template <class T> GPU_FUNCTION T Packed(u64 start, u64 index, u32 width) const {
        return static_cast<T>(Bits(start, index * width, width));
    }

  private:
    //! The bytes at `offset`, of which some may be behind the end.
    GPU_FUNCTION u64 LastWord(u64 offset) const {
        u64 word = 0;
        GPU_KEEP_LOOP for (u32 i = 0; i < 8; i++) {
            word |= static_cast<u64>(Byte(offset + i)) << (8 * i);
        }
        return word;
    }

    const u8 *data;
    u64 count;
};

template <> GPU_FUNCTION U128 Bytes::Load(u64 offset) const {
    return {Word(offset), Word(offset + 8)};
}

template <> GPU_FUNCTION U128 Bytes::Packed(u64 start, u64 index, u32 width) const {
    const u64 bit = index * width;
    if (width <= 64) {
        return {Bits(start, bit, width), 0};
    }
    return {Bits(start, bit, 64), Bits(start, bit + 64, width - 64)};
}

//! Bytes that `count` numbers of `width` bits take: DuckDB packs them 32 at a time.
GPU_FUNCTION u64 PackedBytes(u64 count, u32 width) {
    return (count + 31) / 32 * 32 * width / 8;
}

//! Writes wanted string `index` of a task: `length` bytes from `start` on, but no more than it has room for.
GPU_FUNCTION void CopyString(const SegmentTask &task, u32 index, const Bytes &bytes, u64 start, u64 length) {
    const u64 room = task.offsets[index + 1] - task.offsets[index];
    u8 *target = task.chars + task.offsets[index];
    for (u64 i = 0; i < length && i < room; i++) {
        target[i] = bytes.Byte(start + i);
    }
}

//! Wanted string `index`, once it is written.
GPU_FUNCTION void CheckText(const SegmentTask &task, u32 index) {
    const u64 start = task.offsets[index];
    if (task.is_text && !IsUtf8(task.chars + start, task.offsets[index + 1] - start)) {
        Fail(task, NOT_TEXT);
    }
}

GPU_FUNCTION u64 AlignedTo8(u64 offset) {
    return (offset + 7) & ~7ull;
}

} // namespace rawduck::gpu
