#pragma once
//! Values as they are. DuckDB: src/storage/compression/fixed_size_uncompressed.cpp, validity_uncompressed.cpp and
//! string_uncompressed.cpp.
//!
//!     numbers     one after the other
//!     validity    a bit for each row, 1 where it is valid, the lowest bit of a byte first
//!     strings     0   u32: bytes of strings, u32: where they end
//!                 8   i32 for each row: bytes of its string and of all before it
//!                 …   the strings, the first one last
//!
//! A string whose number is negative and differs from the one before lies in another block; one whose number is that of
//! the string before is empty or NULL.
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

template <class V> struct Uncompressed : NoScratch {
    static constexpr u32 GROUP_ROWS = 2048;
    struct Shared {};

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &) {
        using T = typename V::Value;
        const Bytes bytes(task);
        const RowRange rows = Wanted(task, GroupRows(task, group, GROUP_ROWS));
        if (!bytes.Has(0, static_cast<u64>(rows.end) * sizeof(T))) {
            Fail(task, MALFORMED);
            return;
        }
        const Output<V> output(task);
        GPU_EACH(i, rows.end - rows.begin) {
            output.Write(rows.begin + i, bytes.Load<T>(static_cast<u64>(rows.begin + i) * sizeof(T)));
        }
    }
};

struct UncompressedValidity : NoScratch {
    static constexpr u32 GROUP_ROWS = 2048;
    struct Shared {};

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &) {
        const Bytes bytes(task);
        const RowRange rows = Wanted(task, GroupRows(task, group, GROUP_ROWS));
        if (!bytes.Has(0, (static_cast<u64>(rows.end) + 7) / 8)) {
            Fail(task, MALFORMED);
            return;
        }
        const Output<Number<u8>> output(task);
        GPU_EACH(i, rows.end - rows.begin) {
            const u32 row = rows.begin + i;
            output.Write(row, bytes.Byte(row >> 3) >> (row & 7) & 1);
        }
    }
};

struct UncompressedStrings : NoScratch {
    static constexpr u32 GROUP_ROWS = 2048;
    struct Shared {};

    struct String {
        u64 start;
        u32 length;
        u32 error;
    };

    //! Where the strings end; 0 where the segment is malformed.
    static GPU_FUNCTION u64 ReadEnd(const Bytes &bytes, u32 segment_rows) {
        const u64 end = bytes.Load<u32>(4);
        return bytes.Has(0, end) && end >= 8 + 4ull * segment_rows ? end : 0;
    }

    //! The bytes that number `row` says; without its sign.
    static GPU_FUNCTION u64 Magnitude(i32 number) {
        return static_cast<u64>(number < 0 ? -static_cast<i64>(number) : number);
    }

    static GPU_FUNCTION String Find(const Bytes &bytes, u32 segment_rows, u64 end, u32 row) {
        constexpr u64 OVERFLOW_MARKER_BYTES = 12; // block and offset
        const i32 number = static_cast<i32>(bytes.Load<u32>(8 + 4ull * row));
        const i32 number_before = row == 0 ? 0 : static_cast<i32>(bytes.Load<u32>(8 + 4ull * (row - 1)));
        const u64 upto = Magnitude(number), before = Magnitude(number_before);
        if (upto < before || upto > end - (8 + 4ull * segment_rows)) {
            return {0, 0, MALFORMED};
        }
        if (number < 0 && number != number_before) {
            return {0, 0, upto - before == OVERFLOW_MARKER_BYTES ? OVERFLOW_STRING : MALFORMED};
        }
        return {end - upto, static_cast<u32>(upto - before), 0};
    }

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &) {
        const Bytes bytes(task);
        const RowRange rows = Wanted(task, GroupRows(task, group, GROUP_ROWS));
        const u64 end = ReadEnd(bytes, task.segment_rows);
        if (end == 0) {
            Fail(task, MALFORMED);
        }
        GPU_EACH(i, rows.end - rows.begin) {
            const u32 row = rows.begin + i;
            const String string = end == 0 ? String{0, 0, 0} : Find(bytes, task.segment_rows, end, row);
            if (string.error) {
                SetBits(task.error, string.error);
            }
            task.lengths[row - task.first_row] = string.length;
        }
    }

    static GPU_FUNCTION void Characters(const SegmentTask &task, u32 group, Shared &) {
        const Bytes bytes(task);
        const RowRange rows = Wanted(task, GroupRows(task, group, GROUP_ROWS));
        const u64 end = ReadEnd(bytes, task.segment_rows);
        if (end == 0) {
            return; // said in phase VALUES
        }
        GPU_EACH(i, rows.end - rows.begin) {
            const u32 row = rows.begin + i, index = row - task.first_row;
            const String string = Find(bytes, task.segment_rows, end, row);
            CopyString(task, index, bytes, string.start, string.length);
            CheckText(task, index);
        }
    }
};

} // namespace rawduck::gpu
