#pragma once
//! What a kernel is told. Plain data: it is copied to the device as it is.
#include "gpu/decode/lanes.hpp"

namespace rawduck::gpu {

enum class Codec : u32 { CONSTANT, UNCOMPRESSED, BITPACKING, RLE, ALP, ALPRD, DICT_FSST, ROARING };

//! What is stored, and what is written: signed and unsigned numbers, dates, timestamps, decimals by their width, UUID and
//! HUGEINT as INT128. STRING is written as lengths and characters, VALIDITY as a byte for each row, 1 where it is valid.
//! BOOL is a byte, 0 or 1; DuckDB fills rows that are NULL with 0x80, which becomes 0.
enum class Kind : u32 { INT8, INT16, INT32, INT64, INT128, FLOAT32, FLOAT64, STRING, VALIDITY, BOOL };

//! Bytes of a value; 0 for strings.
GPU_FUNCTION u32 WidthOf(Kind kind) {
    switch (kind) {
    case Kind::INT8:
    case Kind::BOOL:
    case Kind::VALIDITY:
        return 1;
    case Kind::INT16:
        return 2;
    case Kind::INT32:
    case Kind::FLOAT32:
        return 4;
    case Kind::INT64:
    case Kind::FLOAT64:
        return 8;
    case Kind::INT128:
        return 16;
    case Kind::STRING:
        break;
    }
    return 0;
}

//! Bits of an error word.
enum Error : u32 {
    MALFORMED = 1,       //!< the bytes are not what DuckDB writes
    OVERFLOW_STRING = 2, //!< a string lies in another block, which is not among the bytes
    NOT_TEXT = 4,        //!< a string of a task with is_text is not UTF-8
};

//! Each phase is complete before the next. A task takes part in those for which GroupCount is not 0.
enum class Phase : u32 {
    PREPARE, //!< scratch: where runs, containers and dictionary entries start
    VALUES,  //!< values, valid, lengths
    BYTES,   //!< chars
};

//! Part of a segment that is to be decoded: its rows [first_row, first_row + row_count).
//!
//! Whatever the bytes say, nothing is read outside [bytes, bytes + byte_count), and nothing is written but what stands
//! here. Pointers to numbers are aligned to the number's width, or to 8 where that is less.
struct SegmentTask {
    Codec codec;
    Kind kind;
    const u8 *bytes;  //!< the segment's first byte, at any alignment; null for CONSTANT
    u64 byte_count;   //!< from there to the segment's end
    u32 segment_rows; //!< rows of the whole segment
    u32 first_row;    //!< the first one that is wanted
    u32 row_count;    //!< how many are wanted, at least 1; they end within the segment
    u8 constant[16];  //!< CONSTANT: the value, little endian
    u8 *values;       //!< row_count values; unused for STRING
    u8 *valid;        //!< DICT_FSST: row_count bytes, 0 where a string is NULL; null where that is not wanted
    u32 *lengths;     //!< STRING: the bytes of each string, row_count of them, 0 for NULL
    const u64 *offsets; //!< STRING, in phase BYTES: where each string starts in chars, row_count + 1 of them
    u8 *chars;          //!< STRING, in phase BYTES: offsets[row_count] bytes
    u32 is_text;        //!< STRING: 1 where only UTF-8 is allowed
    u8 *scratch;        //!< ScratchBytes(task) bytes, kept between the phases
    u32 *error; //!< 0 before; kernels set bits of Error. The output is undefined where it is not 0 afterwards
};

//! The work of one thread block: the group of rows `group`, counted from the first one that holds a wanted row.
struct GroupItem {
    u32 task;
    u32 group;
};

//! A block of a database file.
struct ChecksumTask {
    const u8 *block; //!< 8 bytes of checksum, then the data
    u64 byte_count;  //!< of both, a multiple of 8
    u64 *difference; //!< 0 before; another number afterwards where they do not fit each other
};

GPU_FUNCTION void Fail(const SegmentTask &task, Error error) {
    SetBits(task.error, error);
}

//! Rows of a segment, from `begin` to before `end`.
struct RowRange {
    u32 begin;
    u32 end;
};

//! The `group`-th group with a wanted row, where a group has `rows` rows: all its rows, wanted or not.
GPU_FUNCTION RowRange GroupRows(const SegmentTask &task, u32 group, u32 rows) {
    const u32 begin = (task.first_row / rows + group) * rows;
    const u32 left = task.segment_rows - begin;
    return {begin, begin + (left < rows ? left : rows)};
}

//! Those rows of a range that are wanted.
GPU_FUNCTION RowRange Wanted(const SegmentTask &task, RowRange range) {
    const u32 end = task.first_row + task.row_count;
    return {range.begin > task.first_row ? range.begin : task.first_row, range.end < end ? range.end : end};
}

//! A decoder that keeps nothing between phases.
struct NoScratch {
    static GPU_FUNCTION u64 ScratchBytes(const SegmentTask &) { return 0; }
};

//! A number that may have any value.
template <class T> struct Number {
    using Value = T;
    static GPU_FUNCTION bool Accept(T &value) { return true; }
};

struct Boolean {
    using Value = u8;
    static GPU_FUNCTION bool Accept(u8 &value) {
        if (value == 0x80) {
            value = 0;
        }
        return value <= 1;
    }
};

//! Where the values of a task go. `V` is Number or Boolean.
template <class V> class Output {
  public:
    using T = typename V::Value;

    explicit GPU_FUNCTION Output(const SegmentTask &task)
        : values(reinterpret_cast<T *>(task.values)), first_row(task.first_row), row_count(task.row_count),
          error(task.error) {}

    //! Row `row` of the segment; one that is not wanted is left out.
    GPU_FUNCTION void Write(u32 row, T value) const {
        const u32 index = row - first_row; // before first_row: wraps around to more than any count
        if (index >= row_count) {
            return;
        }
        if (V::Accept(value)) {
            values[index] = value;
        } else {
            SetBits(error, MALFORMED);
        }
    }

  private:
    T *values;
    u32 first_row;
    u32 row_count;
    u32 *error;
};

} // namespace rawduck::gpu
