#pragma once
//! All rows have one value, which DuckDB keeps in the segment's statistics: there is no block to read.
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

template <class V> struct Constant : NoScratch {
    static constexpr u32 GROUP_ROWS = 2048;
    struct Shared {};

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &) {
        using T = typename V::Value;
        const T value = Bytes(task.constant, sizeof(task.constant)).Load<T>(0);
        const RowRange rows = Wanted(task, GroupRows(task, group, GROUP_ROWS));
        const Output<V> output(task);
        GPU_EACH(i, rows.end - rows.begin) {
            output.Write(rows.begin + i, value);
        }
    }
};

} // namespace rawduck::gpu
