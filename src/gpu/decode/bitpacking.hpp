#pragma once
//! Bit packing. DuckDB: src/storage/compression/bitpacking.cpp.
//!
//!     0                 u64: where the table of groups ends
//!     8 …               groups of 2048 rows
//!     … table's end     u32 for each group, the last one first: where it starts (24 bits), mode (8 bits)
//!
//! A group starts with one to three numbers of the column's width, then the packed ones, 32 at a time. In all modes the
//! sums wrap around.
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

template <class V> struct BitPacking : NoScratch {
    using T = typename V::Value;
    static constexpr u32 GROUP_ROWS = 2048;
    static constexpr u32 ROWS_PER_LANE = GROUP_ROWS / BLOCK;
    struct Shared {
        T rows[GROUP_ROWS];
        T sums[BLOCK];
    };

    enum Mode : u32 { CONSTANT = 2, CONSTANT_DELTA = 3, DELTA_FOR = 4, FOR = 5 };

    struct Group {
        u32 mode;
        u32 width;
        T base; //!< the constant; of CONSTANT_DELTA the first value; otherwise what every packed number lacks
        T delta;    //!< CONSTANT_DELTA: from row to row
        T before;   //!< DELTA_FOR: what stands before the first row
        u64 packed; //!< where the packed numbers start
    };

    //! False where the group is malformed.
    static GPU_FUNCTION bool Read(const Bytes &bytes, u32 segment_rows, RowRange rows, Group &group) {
        const u64 group_count = (static_cast<u64>(segment_rows) + GROUP_ROWS - 1) / GROUP_ROWS;
        const u64 table_end = bytes.Load<u64>(0);
        if (table_end > bytes.Count() || table_end < 8 + 4 * group_count) {
            return false;
        }
        const u64 table = table_end - 4 * group_count;
        const u64 index = rows.begin / GROUP_ROWS;
        const u32 entry = bytes.Load<u32>(table_end - 4 * (index + 1));
        const u64 start = entry & 0xffffff;
        const u64 end =
            index + 1 < group_count ? bytes.Load<u32>(table_end - 4 * (index + 2)) & 0xffffff : table;
        if (start < 8 || start > end || end > table) {
            return false;
        }
        group.mode = entry >> 24;
        const u32 numbers = group.mode == CONSTANT ? 1 : group.mode == DELTA_FOR ? 3 : 2;
        if (group.mode < CONSTANT || group.mode > FOR || end - start < numbers * sizeof(T)) {
            return false;
        }
        group.base = bytes.Load<T>(start);
        group.delta = bytes.Load<T>(start + sizeof(T));
        group.before = bytes.Load<T>(start + 2 * sizeof(T));
        group.packed = start + numbers * sizeof(T);
        return group.mode < DELTA_FOR || ReadWidth(bytes, start + sizeof(T), rows, end, group);
    }

    static GPU_FUNCTION bool ReadWidth(const Bytes &bytes, u64 offset, RowRange rows, u64 end, Group &group) {
        group.width = bytes.Byte(offset);
        for (u32 i = 1; i < sizeof(T); i++) {
            if (bytes.Byte(offset + i) != 0) {
                return false;
            }
        }
        return group.width <= 8 * sizeof(T) &&
               PackedBytes(rows.end - rows.begin, group.width) <= end - group.packed;
    }

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 index, Shared &shared) {
        const Bytes bytes(task);
        const RowRange rows = GroupRows(task, index, GROUP_ROWS);
        const Output<V> output(task);
        Group group = {};
        if (!Read(bytes, task.segment_rows, rows, group)) {
            Fail(task, MALFORMED);
            return;
        }
        if (group.mode == DELTA_FOR) {
            Deltas(bytes, rows, group, output, shared);
            return;
        }
        const RowRange wanted = Wanted(task, rows);
        GPU_EACH(i, wanted.end - wanted.begin) {
            const u32 row = wanted.begin + i;
            T value = group.base;
            if (group.mode == CONSTANT_DELTA) {
                value = Plus(Times(group.delta, row - rows.begin), value);
            } else if (group.mode == FOR) {
                value = Plus(bytes.Packed<T>(group.packed, row - rows.begin, group.width), value);
            }
            output.Write(row, value);
        }
    }

    //! Every row is the sum of those before it: each lane adds up some in a row, and then what stands before these.
    static GPU_FUNCTION void Deltas(const Bytes &bytes, RowRange rows, const Group &group,
                                    const Output<V> &output, Shared &shared) {
        const u32 count = rows.end - rows.begin;
        GPU_EACH(i, GROUP_ROWS) {
            shared.rows[i] =
                i < count ? Plus(bytes.Packed<T>(group.packed, i, group.width), group.base) : T();
        }
        GPU_SYNC();
        GPU_LANES(lane) {
            T sum = T();
            for (u32 i = 0; i < ROWS_PER_LANE; i++) {
                sum = Plus(sum, shared.rows[lane * ROWS_PER_LANE + i]);
            }
            shared.sums[lane] = sum;
        }
        SumUp(shared.sums);
        GPU_LANES(lane) {
            T sum = lane == 0 ? group.before : Plus(group.before, shared.sums[lane - 1]);
            for (u32 i = 0; i < ROWS_PER_LANE; i++) {
                sum = Plus(sum, shared.rows[lane * ROWS_PER_LANE + i]);
                shared.rows[lane * ROWS_PER_LANE + i] = sum;
            }
        }
        GPU_SYNC();
        GPU_EACH(i, count) {
            output.Write(rows.begin + i, shared.rows[i]);
        }
    }
};

} // namespace rawduck::gpu
