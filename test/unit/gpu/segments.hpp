#pragma once
//! Segments made by hand, and decoding them into buffers in which any byte too far is found by AddressSanitizer.
#include "gpu/decode/decode.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace rawduck::gpu::testing {

__extension__ typedef unsigned __int128 Wide; // what U128 stands for

//! Bytes of a segment, written from the front.
struct Writer {
    std::vector<u8> bytes;

    template <class T> void Put(T value) { PutAt(bytes.size(), value); }

    template <class T> void PutAt(size_t offset, T value) {
        if (bytes.size() < offset + sizeof(T)) {
            bytes.resize(offset + sizeof(T));
        }
        std::memcpy(bytes.data() + offset, &value, sizeof(T));
    }

    void Align(size_t alignment) { bytes.resize((bytes.size() + alignment - 1) / alignment * alignment); }

    //! As DuckDB packs numbers: `width` bits each, 32 numbers at a time.
    template <class T> void Pack(const std::vector<T> &numbers, u32 width) {
        const size_t start = bytes.size();
        bytes.resize(start + (numbers.size() + 31) / 32 * 32 * width / 8);
        for (size_t i = 0; i < numbers.size(); i++) {
            for (u32 bit = 0; bit < width; bit++) {
                const size_t place = i * width + bit;
                bytes[start + place / 8] |= static_cast<u8>((numbers[i] >> bit & 1) << (place % 8));
            }
        }
    }
};

struct Decoded {
    std::vector<u8> values; // exactly as many as there are rows
    std::vector<u8> valid;
    std::vector<std::string> strings;
    u32 error = 0;

    template <class T> std::vector<T> As() const {
        std::vector<T> all(values.size() / sizeof(T));
        std::memcpy(all.data(), values.data(), values.size());
        return all;
    }
};

inline void RunPhase(const SegmentTask &task, Phase phase) {
    std::vector<GroupItem> items;
    for (u32 group = 0; group < GroupCount(task, phase); group++) {
        items.insert(items.begin(), {0, group}); // the last one first: groups do not need each other
    }
    LaunchOnHost(task.codec, task.kind, phase, &task, items.data(), items.size());
}

//! Where strings start, given their lengths; false where there are too many bytes, as the caller of kernels would refuse.
inline bool Offsets(const std::vector<u32> &lengths, std::vector<u64> &offsets) {
    offsets.assign(1, 0);
    for (const u32 length : lengths) {
        offsets.push_back(offsets.back() + length);
    }
    return offsets.back() <= 64u << 20;
}

//! Rows [first_row, first_row + row_count) of a segment; the whole of it where row_count is 0.
inline Decoded Decode(Codec codec, Kind kind, const std::vector<u8> &segment, u32 segment_rows,
                      u32 first_row = 0, u32 row_count = 0, bool is_text = false) {
    row_count = row_count == 0 ? segment_rows : row_count;
    const std::unique_ptr<u8[]> bytes(new u8[segment.size()]); // not a byte more
    std::copy(segment.begin(), segment.end(), bytes.get());
    Decoded decoded;
    decoded.values.resize(static_cast<size_t>(row_count) * WidthOf(kind));
    SegmentTask task = {};
    task.codec = codec;
    task.kind = kind;
    task.bytes = bytes.get();
    task.byte_count = segment.size();
    task.segment_rows = segment_rows;
    task.first_row = first_row;
    task.row_count = row_count;
    task.is_text = is_text ? 1 : 0;
    task.values = decoded.values.data();
    task.error = &decoded.error;
    EXPECT_EQ(ScratchBytes(task) % 8, 0u);
    const size_t scratch_words = ScratchBytes(task) / 8;
    const std::unique_ptr<u64[]> scratch(new u64[scratch_words]);
    std::memset(scratch.get(), 0xa5, scratch_words * 8);
    task.scratch = reinterpret_cast<u8 *>(scratch.get());
    std::vector<u32> lengths;
    if (kind == Kind::STRING) {
        lengths.resize(row_count);
        decoded.valid.resize(row_count, 1);
        task.lengths = lengths.data();
        task.valid = decoded.valid.data();
    }
    RunPhase(task, Phase::PREPARE);
    RunPhase(task, Phase::VALUES);
    std::vector<u64> offsets;
    if (kind == Kind::STRING && Offsets(lengths, offsets)) {
        const std::unique_ptr<u8[]> chars(new u8[offsets.back()]);
        task.offsets = offsets.data();
        task.chars = chars.get();
        RunPhase(task, Phase::BYTES);
        for (u32 i = 0; i < row_count; i++) {
            decoded.strings.emplace_back(chars.get() + offsets[i], chars.get() + offsets[i + 1]);
        }
    }
    return decoded;
}

//! Every byte of a segment changed in several ways, and the segment cut short everywhere near its ends: whatever
//! becomes of the values, nothing outside is touched.
inline void DecodeDamaged(Codec codec, Kind kind, const std::vector<u8> &segment, u32 rows,
                          size_t stride = 1) {
    for (size_t i = 0; i < segment.size(); i += stride) {
        for (const u8 change : {0x01, 0x80, 0xff}) {
            std::vector<u8> damaged = segment;
            damaged[i] ^= change;
            Decode(codec, kind, damaged, rows);
        }
        Decode(codec, kind, std::vector<u8>(segment.begin(), segment.begin() + static_cast<i64>(i)), rows);
    }
}

} // namespace rawduck::gpu::testing
