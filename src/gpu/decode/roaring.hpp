#pragma once
//! Roaring: bits of validity, or of booleans. DuckDB: src/storage/compression/roaring.
//!
//!     0   u64: where the table starts, counted from 8
//!     8   containers of 2048 rows
//!     …   table: 2 bits for each container (run, inverted), 7 bits for each run container: its runs, u8 for each other
//!         container: its rows, or 249 for a bitset
//!
//!     bitset           a bit for each row; starts at a multiple of 8
//!     array            the rows that are set, or that are not where it is inverted; fewer than 8: u16 each, at a multiple of 2;
//!                      otherwise the low 8 bits of each, behind 8 bytes that count how many lie in each 256 rows
//!     runs             of rows that are not set; fewer than 4: u16 start and u16 length - 1 each, at a multiple of 4;
//!                      otherwise the low 8 bits of start and end each, behind 8 bytes that count them as above
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

struct Roaring {
    static constexpr u32 GROUP_ROWS = 2048;
    static constexpr u32 PARTS = 8; // of a container, of 256 rows each
    static constexpr u32 BITSET = 249;
    static constexpr u32 SHORT_ARRAY = 8;
    static constexpr u32 SHORT_RUNS = 4;
    struct Shared {
        u8 set[GROUP_ROWS];
    };

    enum Type : u32 { ARRAY, INVERTED_ARRAY, RUNS, BITS };

    //! In scratch, for each container.
    struct Container {
        u32 start; //!< 0 where the segment is malformed
        u16 type;
        u16 count; //!< rows of an array, or runs
    };

    static GPU_FUNCTION u64 ContainerCount(const SegmentTask &task) {
        return (static_cast<u64>(task.segment_rows) + GROUP_ROWS - 1) / GROUP_ROWS;
    }

    static GPU_FUNCTION u64 ScratchBytes(const SegmentTask &task) {
        return ContainerCount(task) * sizeof(Container);
    }

    static GPU_FUNCTION u64 Size(const Container &container, u32 rows) {
        switch (container.type) {
        case BITS:
            return (rows + 63) / 64 * 8;
        case RUNS:
            return container.count < SHORT_RUNS ? 4ull * container.count : PARTS + 2ull * container.count;
        default:
            return container.count < SHORT_ARRAY ? 2ull * container.count : PARTS + container.count;
        }
    }

    static GPU_FUNCTION u64 Alignment(const Container &container) {
        switch (container.type) {
        case BITS:
            return 8;
        case RUNS:
            return container.count < SHORT_RUNS ? 4 : 1;
        default:
            return container.count < SHORT_ARRAY ? 2 : 1;
        }
    }

    //! Where each container starts follows from those before it: one lane goes through the table.
    static GPU_FUNCTION void Prepare(const SegmentTask &task, u32, Shared &) {
        GPU_LANES(lane) {
            if (lane == 0 && !ReadTable(task)) {
                Fail(task, MALFORMED);
            }
        }
    }

    static GPU_FUNCTION bool ReadTable(const SegmentTask &task) {
        const Bytes bytes(task);
        Container *containers = reinterpret_cast<Container *>(task.scratch);
        const u64 count = ContainerCount(task);
        for (u64 i = 0; i < count; i++) {
            containers[i] = {};
        }
        const u64 offset = bytes.Load<u64>(0);
        if (bytes.Count() < 8 || offset > bytes.Count() - 8) {
            return false;
        }
        const u64 table = 8 + offset, run_counts = table + PackedBytes(count, 2);
        u64 runs = 0;
        for (u64 i = 0; i < count; i++) {
            runs += bytes.Packed<u32>(table, i, 2) >> 1;
        }
        const u64 array_counts = run_counts + PackedBytes(runs, 7);
        if (!bytes.Has(array_counts, count - runs)) {
            return false;
        }
        u64 position = 0; // counted from 8, as alignment is
        for (u64 i = 0, run = 0, array = 0; i < count; i++) {
            const u32 type = bytes.Packed<u32>(table, i, 2);
            Container container = {};
            if (type >> 1) {
                container.type = RUNS;
                container.count = bytes.Packed<u16>(run_counts, run++, 7);
            } else {
                container.count = bytes.Byte(array_counts + array++);
                container.type = container.count == BITSET ? BITS : type & 1 ? INVERTED_ARRAY : ARRAY;
            }
            const u64 rows_left = task.segment_rows - i * GROUP_ROWS;
            const u64 alignment = Alignment(container);
            position = (position + alignment - 1) / alignment * alignment;
            container.start = static_cast<u32>(8 + position);
            position += Size(container, rows_left < GROUP_ROWS ? static_cast<u32>(rows_left) : GROUP_ROWS);
            if (container.count > BITSET || position > offset || position >> 31) {
                return false;
            }
            containers[i] = container;
        }
        return true;
    }

    //! The `index`-th number of those whose low 8 bits stand behind PARTS counts at `start`. 2048 is the highest: a run
    //! that lasts to the end of the container ends there.
    static GPU_FUNCTION u32 Find(const Bytes &bytes, u64 start, u32 index) {
        u32 part = 0, upto = bytes.Byte(start);
        while (part < PARTS && upto <= index) {
            part++;
            upto += part < PARTS ? bytes.Byte(start + part) : 0;
        }
        return part * 256 + bytes.Byte(start + PARTS + index);
    }

    //! Sets the rows of an array to `value`. False where one of them is not there.
    static GPU_FUNCTION void SetArray(const SegmentTask &task, const Container &container, u32 rows, u8 value,
                                      Shared &shared) {
        const Bytes bytes(task);
        GPU_EACH(i, container.count) {
            const u32 row = container.count < SHORT_ARRAY ? bytes.Load<u16>(container.start + 2ull * i)
                                                          : Find(bytes, container.start, i);
            if (row < rows) {
                shared.set[row] = value;
            } else {
                Fail(task, MALFORMED);
            }
        }
    }

    static GPU_FUNCTION void ClearRuns(const SegmentTask &task, const Container &container, u32 rows,
                                       Shared &shared) {
        const Bytes bytes(task);
        GPU_EACH(i, container.count) {
            u32 start, end;
            if (container.count < SHORT_RUNS) {
                start = bytes.Load<u16>(container.start + 4ull * i);
                end = start + 1 + bytes.Load<u16>(container.start + 4ull * i + 2);
                // DuckDB counts one too many where the last row of a container ends a run.
                end = end == rows + 1 ? rows : end;
            } else {
                start = Find(bytes, container.start, 2 * i);
                end = Find(bytes, container.start, 2 * i + 1);
            }
            if (start >= end || end > rows) {
                Fail(task, MALFORMED);
                end = start;
            }
            for (u32 row = start; row < end; row++) {
                shared.set[row] = 0;
            }
        }
    }

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &shared) {
        const Bytes bytes(task);
        const RowRange rows = GroupRows(task, group, GROUP_ROWS);
        const u32 count = rows.end - rows.begin;
        const Container container =
            reinterpret_cast<const Container *>(task.scratch)[rows.begin / GROUP_ROWS];
        if (container.start == 0) {
            return; // said in phase PREPARE
        }
        GPU_EACH(i, count) {
            shared.set[i] = container.type == BITS ? bytes.Byte(container.start + (i >> 3)) >> (i & 7) & 1
                                                   : container.type != ARRAY;
        }
        GPU_SYNC();
        if (container.type == RUNS) {
            ClearRuns(task, container, count, shared);
        } else if (container.type != BITS) {
            SetArray(task, container, count, container.type == ARRAY, shared);
        }
        GPU_SYNC();
        const Output<Number<u8>> output(task);
        GPU_EACH(i, count) {
            output.Write(rows.begin + i, shared.set[i]);
        }
    }
};

} // namespace rawduck::gpu
