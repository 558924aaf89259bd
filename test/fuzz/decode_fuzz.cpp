//! libFuzzer target: segments of a database file, which kernels decode. Whatever the bytes, nothing outside of them is
//! read, nothing outside of the output is written, and a part of a segment decodes as the whole of it does.
//!
//! Input: codec, kind, two bytes of rows, two of the first wanted row, then the segment.
#include "gpu/decode/decode.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

using namespace rawduck::gpu;

namespace {

constexpr u32 MOST_CODEC = static_cast<u32>(Codec::ROARING), MOST_KIND = static_cast<u32>(Kind::BOOL);
constexpr u64 MOST_CHARS = 1u << 24;
constexpr u32 HEADER_BYTES = 6;

void Require(bool promise) {
    if (!promise) {
        abort();
    }
}

//! What came out; buffers are exactly as large as promised, so that AddressSanitizer sees a byte too far.
struct Result {
    std::vector<u32> lengths;
    std::vector<u8> valid;
    std::vector<u8> chars; // or the values
    std::vector<u64> offsets = {0};
    u32 error = 0;
};

void Run(const SegmentTask &task, Phase phase) {
    for (u32 group = 0; group < GroupCount(task, phase); group++) {
        const GroupItem item = {0, group};
        LaunchOnHost(task.codec, task.kind, phase, &task, &item, 1);
    }
}

void Decode(SegmentTask task, Result &output) {
    const u64 value_bytes = static_cast<u64>(task.row_count) * WidthOf(task.kind);
    const std::unique_ptr<u8[]> values(new u8[value_bytes]());
    const std::unique_ptr<u8[]> scratch(new u8[ScratchBytes(task)]);
    task.values = values.get();
    task.scratch = scratch.get();
    task.error = &output.error;
    if (task.kind == Kind::STRING) {
        output.lengths.resize(task.row_count);
        output.valid.resize(task.row_count);
        task.lengths = output.lengths.data();
        task.valid = output.valid.data();
    }
    Run(task, Phase::PREPARE);
    Run(task, Phase::VALUES);
    for (const u32 length : output.lengths) {
        output.offsets.push_back(output.offsets.back() + length);
    }
    if (task.kind == Kind::STRING && output.offsets.back() <= MOST_CHARS) {
        output.chars.resize(output.offsets.back());
        task.offsets = output.offsets.data();
        task.chars = output.chars.data();
        Run(task, Phase::BYTES);
    }
    if (task.kind != Kind::STRING) {
        output.chars.assign(values.get(), values.get() + value_bytes);
    }
}

void RequireSamePart(const SegmentTask &task, const Result &whole, u32 first_row) {
    SegmentTask part = task;
    part.first_row = first_row;
    part.row_count = task.segment_rows - first_row;
    Result output;
    Decode(part, output);
    Require(output.error == 0);
    Require(output.chars.size() <= whole.chars.size());
    Require(std::equal(output.chars.rbegin(), output.chars.rend(), whole.chars.rbegin()));
    Require(std::equal(output.lengths.rbegin(), output.lengths.rend(), whole.lengths.rbegin()));
    Require(std::equal(output.valid.rbegin(), output.valid.rend(), whole.valid.rbegin()));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEADER_BYTES) {
        return 0;
    }
    SegmentTask task = {};
    task.codec = static_cast<Codec>(data[0] % (MOST_CODEC + 1));
    task.kind = static_cast<Kind>(data[1] % (MOST_KIND + 1));
    if (!CanDecode(task.codec, task.kind)) {
        return 0;
    }
    task.segment_rows = 1 + (data[2] | data[3] << 8) % 10000;
    task.row_count = task.segment_rows;
    const std::vector<u8> bytes(data + HEADER_BYTES, data + size);
    task.bytes = bytes.data();
    task.byte_count = bytes.size();
    std::memcpy(task.constant, data, HEADER_BYTES);
    Result whole;
    Decode(task, whole);
    if (whole.error == 0 && whole.offsets.back() <= MOST_CHARS) {
        RequireSamePart(task, whole, (data[4] | data[5] << 8) % task.segment_rows);
    }
    u64 difference = 0;
    const ChecksumTask block = {task.bytes, task.byte_count, &difference};
    LaunchChecksumsOnHost(&block, 1);
    return 0;
}
