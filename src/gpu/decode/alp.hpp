#pragma once
//! ALP and ALPRD: floats. DuckDB: src/include/duckdb/storage/compression/alp and alprd.
//!
//!     0                 u32: where the table of vectors ends
//!     4                 ALPRD: u8 width of right parts, u8 width of left parts, u8 entries of the dictionary, u16 for each
//!     …                 vectors of 1024 rows
//!     … table's end     u32 for each vector, the last one first: where it starts
//!
//!     ALP vector        u8 exponent (255: the values follow as they are), u8 factor, u16 exceptions, u64 frame of reference,
//!                       u8 width, packed numbers, a value for each exception, u16 for each exception: its row
//!     ALPRD vector      u16 exceptions (65535: the values follow as they are), packed left parts, packed right parts,
//!                       u16 for each exception: its left part, u16 for each: its row
//!
//! ALP: a value is its number times 10^factor times 10^-exponent, rounded after each step. ALPRD: the left part of the
//! bits is looked up in the dictionary, the right part is stored.
#include "gpu/decode/bytes.hpp"

namespace rawduck::gpu {

constexpr u32 ALP_ROWS = 1024;

GPU_CONSTANT double ALP_FACTORS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                     1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
GPU_CONSTANT double ALP_FRACTIONS[] = {1.0,   1e-1,  1e-2,  1e-3,  1e-4,  1e-5,  1e-6,  1e-7,  1e-8, 1e-9,
                                       1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16, 1e-17, 1e-18};
GPU_CONSTANT float ALP_FACTORS_OF_FLOATS[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f,
                                              1e6f, 1e7f, 1e8f, 1e9f, 1e10f};
GPU_CONSTANT float ALP_FRACTIONS_OF_FLOATS[] = {1.0f,  1e-1f, 1e-2f, 1e-3f, 1e-4f, 1e-5f,
                                                1e-6f, 1e-7f, 1e-8f, 1e-9f, 1e-10f};

//! `Bits` are those of a value, as they are stored and written.
struct Doubles {
    using Float = double;
    using Bits = u64;
    static constexpr u32 MOST_EXPONENT = 18;
    static GPU_FUNCTION double Factor(u32 factor) { return ALP_FACTORS[factor]; }
    static GPU_FUNCTION double Fraction(u32 exponent) { return ALP_FRACTIONS[exponent]; }
    static GPU_FUNCTION u64 BitsOf(double value) {
#ifdef __CUDACC__
        return __double_as_longlong(value);
#else
        u64 bits;
        __builtin_memcpy(&bits, &value, sizeof(bits));
        return bits;
#endif
    }
};

struct Floats {
    using Float = float;
    using Bits = u32;
    static constexpr u32 MOST_EXPONENT = 10;
    static GPU_FUNCTION float Factor(u32 factor) { return ALP_FACTORS_OF_FLOATS[factor]; }
    static GPU_FUNCTION float Fraction(u32 exponent) { return ALP_FRACTIONS_OF_FLOATS[exponent]; }
    static GPU_FUNCTION u32 BitsOf(float value) {
#ifdef __CUDACC__
        return __float_as_uint(value);
#else
        u32 bits;
        __builtin_memcpy(&bits, &value, sizeof(bits));
        return bits;
#endif
    }
};

//! Where the vector with these rows starts and ends; `first_byte` is where the first one may start. False where the
//! table is malformed.
GPU_FUNCTION bool FindVector(const Bytes &bytes, u32 segment_rows, u32 row, u64 first_byte, u64 &start,
                             u64 &end) {
    const u64 vectors = (static_cast<u64>(segment_rows) + ALP_ROWS - 1) / ALP_ROWS;
    const u64 table_end = bytes.Load<u32>(0);
    if (table_end > bytes.Count() || table_end < first_byte + 4 * vectors) {
        return false;
    }
    const u64 table = table_end - 4 * vectors;
    const u64 vector = row / ALP_ROWS;
    start = bytes.Load<u32>(table_end - 4 * (vector + 1));
    end = vector + 1 < vectors ? bytes.Load<u32>(table_end - 4 * (vector + 2)) : table;
    return start >= first_byte && start <= end && end <= table;
}

template <class F> struct AlpVector {
    using T = typename F::Bits;

    //! The values follow at `start` as they are.
    static GPU_FUNCTION void Copy(const SegmentTask &task, RowRange rows, u64 start, u64 end) {
        const Bytes bytes(task);
        const Output<Number<T>> output(task);
        const u32 count = rows.end - rows.begin;
        if (start > end || end - start < static_cast<u64>(count) * sizeof(T)) {
            Fail(task, MALFORMED);
            return;
        }
        GPU_EACH(i, count) {
            output.Write(rows.begin + i, bytes.Load<T>(start + static_cast<u64>(i) * sizeof(T)));
        }
    }

    //! Row of exception `index` within the vector; `count` where there is no such row, which is malformed.
    static GPU_FUNCTION u32 ExceptionRow(const SegmentTask &task, u64 positions, u32 index, u32 count) {
        const u32 row = Bytes(task).Load<u16>(positions + 2ull * index);
        if (row >= count) {
            Fail(task, MALFORMED);
            return count;
        }
        return row;
    }
};

template <class F> struct Alp : NoScratch {
    using T = typename F::Bits;
    static constexpr u32 GROUP_ROWS = ALP_ROWS;
    static constexpr u64 HEADER_BYTES = 13;
    struct Shared {};

    static GPU_FUNCTION T Decode(u64 number, typename F::Float factor, typename F::Float fraction) {
        using Float = typename F::Float;
        const Float value = static_cast<Float>(static_cast<i64>(number)) * factor * fraction;
        return F::BitsOf(value);
    }

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &) {
        const Bytes bytes(task);
        const RowRange rows = GroupRows(task, group, GROUP_ROWS);
        const u32 count = rows.end - rows.begin;
        u64 start, end;
        if (!FindVector(bytes, task.segment_rows, rows.begin, 4, start, end) || start == end) {
            Fail(task, MALFORMED);
            return;
        }
        const u32 exponent = bytes.Byte(start);
        if (exponent == 255) {
            AlpVector<F>::Copy(task, rows, start + 1, end);
            return;
        }
        const u32 factor = bytes.Byte(start + 1), exceptions = bytes.Load<u16>(start + 2);
        const u64 base = bytes.Load<u64>(start + 4);
        const u32 width = bytes.Byte(start + 12);
        const u64 packed = start + HEADER_BYTES;
        if (exponent > F::MOST_EXPONENT || factor > exponent || exceptions > count || width > 64 ||
            HEADER_BYTES + PackedBytes(count, width) + exceptions * (sizeof(T) + sizeof(u16)) > end - start) {
            Fail(task, MALFORMED);
            return;
        }
        const Output<Number<T>> output(task);
        const RowRange wanted = Wanted(task, rows);
        GPU_EACH(i, wanted.end - wanted.begin) {
            const u32 row = wanted.begin + i;
            const u64 number = bytes.Packed<u64>(packed, row - rows.begin, width) + base;
            output.Write(row, Decode(number, F::Factor(factor), F::Fraction(exponent)));
        }
        GPU_SYNC();
        const u64 values = packed + PackedBytes(count, width), positions = values + exceptions * sizeof(T);
        GPU_EACH(i, exceptions) {
            const u32 row = AlpVector<F>::ExceptionRow(task, positions, i, count);
            if (row < count) {
                output.Write(rows.begin + row, bytes.Load<T>(values + static_cast<u64>(i) * sizeof(T)));
            }
        }
    }
};

template <class F> struct AlpRd : NoScratch {
    using T = typename F::Bits;
    static constexpr u32 GROUP_ROWS = ALP_ROWS;
    static constexpr u32 MOST_ENTRIES = 8;
    struct Shared {
        u16 dictionary[MOST_ENTRIES]; // entries that are not stored are 0
    };

    static GPU_FUNCTION void Values(const SegmentTask &task, u32 group, Shared &shared) {
        const Bytes bytes(task);
        const RowRange rows = GroupRows(task, group, GROUP_ROWS);
        const u32 count = rows.end - rows.begin;
        const u32 right = bytes.Byte(4), left = bytes.Byte(5), entries = bytes.Byte(6);
        u64 start, end;
        if (right >= 8 * sizeof(T) || left > 3 || entries > MOST_ENTRIES ||
            !FindVector(bytes, task.segment_rows, rows.begin, 7 + 2 * entries, start, end) ||
            end - start < 2) {
            Fail(task, MALFORMED);
            return;
        }
        const u32 exceptions = bytes.Load<u16>(start);
        if (exceptions == 65535) {
            AlpVector<F>::Copy(task, rows, start + 2, end);
            return;
        }
        const u64 lefts = start + 2, rights = lefts + PackedBytes(count, left);
        const u64 values = rights + PackedBytes(count, right), positions = values + 2 * exceptions;
        if (exceptions > count || positions + 2 * exceptions > end) {
            Fail(task, MALFORMED);
            return;
        }
        GPU_EACH(i, MOST_ENTRIES) {
            shared.dictionary[i] = i < entries ? bytes.Load<u16>(7 + 2 * i) : 0;
        }
        GPU_SYNC();
        const Output<Number<T>> output(task);
        const RowRange wanted = Wanted(task, rows);
        GPU_EACH(i, wanted.end - wanted.begin) {
            const u32 row = wanted.begin + i;
            const T high = shared.dictionary[bytes.Packed<u32>(lefts, row - rows.begin, left)];
            output.Write(row, high << right | bytes.Packed<T>(rights, row - rows.begin, right));
        }
        GPU_SYNC();
        GPU_EACH(i, exceptions) {
            const u32 row = AlpVector<F>::ExceptionRow(task, positions, i, count);
            if (row < count) {
                const T high = bytes.Load<u16>(values + 2 * i);
                output.Write(rows.begin + row, high << right | bytes.Packed<T>(rights, row, right));
            }
        }
    }
};

} // namespace rawduck::gpu
