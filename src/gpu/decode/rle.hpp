#pragma once
//! Run lengths. DuckDB: src/storage/compression/rle.cpp.
//!
//!     0   u64: where the lengths start
//!     8   a value for each run
//!     …   u16 for each run: its rows
//!
//! The runs that make up the rows are the first ones; there may be bytes of more behind them.
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

template <class V> struct RunLength {
    using T = typename V::Value;
    static constexpr u32 GROUP_ROWS = 2048;
    static constexpr u32 RUNS_PER_LANE = 8;
    struct Shared {
        u64 sums[BLOCK];
    };

    //! In scratch: how many runs there are, 0 where the segment is malformed, and before which row each of them ends.
    struct Runs {
        u32 *count;
        u32 *ends;
        explicit GPU_FUNCTION Runs(const SegmentTask &task)
            : count(reinterpret_cast<u32 *>(task.scratch)), ends(count + 2) {}
    };

    static GPU_FUNCTION u64 MostRuns(const SegmentTask &task) {
        const u64 runs = task.byte_count < 8 ? 0 : (task.byte_count - 8) / (sizeof(T) + sizeof(u16));
        return runs < task.segment_rows ? runs : task.segment_rows;
    }

    static GPU_FUNCTION u64 ScratchBytes(const SegmentTask &task) {
        return AlignedTo8(8 + 4 * MostRuns(task));
    }

    static GPU_FUNCTION void Prepare(const SegmentTask &task, u32, Shared &shared) {
        const Bytes bytes(task);
        const Runs runs(task);
        GPU_LANES(lane) {
            if (lane == 0) {
                *runs.count = 0;
            }
        }
        const u64 lengths = bytes.Load<u64>(0);
        if (lengths < 8 || lengths > bytes.Count()) {
            Fail(task, MALFORMED);
            return;
        }
        u64 most = MostRuns(task);
        most = (lengths - 8) / sizeof(T) < most ? (lengths - 8) / sizeof(T) : most;
        most =
            (bytes.Count() - lengths) / sizeof(u16) < most ? (bytes.Count() - lengths) / sizeof(u16) : most;
        u64 rows = 0;
        for (u64 first = 0; first < most && rows < task.segment_rows; first += BLOCK * RUNS_PER_LANE) {
            GPU_LANES(lane) {
                u64 sum = 0;
                for (u64 run = first + lane * RUNS_PER_LANE, i = 0; i < RUNS_PER_LANE && run + i < most;
                     i++) {
                    sum += bytes.Load<u16>(lengths + 2 * (run + i));
                }
                shared.sums[lane] = sum;
            }
            SumUp(shared.sums);
            GPU_LANES(lane) {
                const u64 before = rows + (lane == 0 ? 0 : shared.sums[lane - 1]);
                WriteEnds(task, bytes, lengths, first + lane * RUNS_PER_LANE, most, before);
            }
            rows += shared.sums[BLOCK - 1];
            GPU_SYNC();
        }
        if (rows < task.segment_rows) {
            Fail(task, MALFORMED);
        }
    }

    //! The ends of one lane's runs, as far as there are rows. `end` is that of the run before.
    static GPU_FUNCTION void WriteEnds(const SegmentTask &task, const Bytes &bytes, u64 lengths, u64 run,
                                       u64 most, u64 end) {
        const Runs runs(task);
        for (u32 i = 0; i < RUNS_PER_LANE && run < most && end < task.segment_rows; i++, run++) {
            end += bytes.Load<u16>(lengths + 2 * run);
            if (end > task.segment_rows) {
                Fail(task, MALFORMED);
            }
            runs.ends[run] = static_cast<u32>(end < task.segment_rows ? end : task.segment_rows);
            if (end >= task.segment_rows) {
                *runs.count = static_cast<u32>(run + 1);
            }
        }
    }

    //! The run of a row, which lies in [low, high).
    static GPU_FUNCTION u32 Find(const u32 *ends, u32 low, u32 high, u32 row) {
        while (low + 1 < high) {
            const u32 middle = (low + high - 1) / 2;
            if (ends[middle] > row) {
                high = middle + 1;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &) {
        const Bytes bytes(task);
        const Runs runs(task);
        const u32 count = *runs.count;
        if (count == 0) {
            return; // said in phase PREPARE
        }
        const RowRange rows = Wanted(task, GroupRows(task, group, GROUP_ROWS));
        const u32 first = Find(runs.ends, 0, count, rows.begin);
        const u32 last = Find(runs.ends, first, count, rows.end - 1);
        const Output<V> output(task);
        GPU_EACH(i, rows.end - rows.begin) {
            const u64 run = Find(runs.ends, first, last + 1, rows.begin + i);
            output.Write(rows.begin + i, bytes.Load<T>(8 + run * sizeof(T)));
        }
    }
};

} // namespace rawduck::gpu
