#include "ceph/parquet/column_ranges.hpp"

#include <algorithm>
#include <cctype>
#include <set>

namespace rawduck_ceph {

namespace {

//! DuckDB merges reads that are at most 16 KiB apart (the worker fixes this), and one read of the object is
//! cheaper than two with this gap.
constexpr uint64_t GAP_BYTES = 64 << 10;
//! DuckDB reads a whole row group when it needs more than 95 % of its bytes.
constexpr double WHOLE_GROUP_SHARE = 0.9;
//! Of a Bloom filter whose length is not recorded.
constexpr uint64_t FILTER_BYTES_GUESSED = 128 << 10;
//! DuckDB reads a thousandth of the file as a guess at the footer, within these limits, rounded up to a power
//! of two.
constexpr uint64_t TAIL_BYTES_MIN = 32 << 10, TAIL_BYTES_MAX = 256 << 10, TAIL_SHARE = 1000;

std::string Lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return c < 128 ? static_cast<char>(std::tolower(c)) : c; });
    return text;
}

std::vector<ObjectRange> Merged(std::vector<ObjectRange> ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const ObjectRange &a, const ObjectRange &b) { return a.start < b.start; });
    std::vector<ObjectRange> merged;
    for (const ObjectRange &range : ranges) {
        if (!merged.empty() && range.start <= merged.back().end + GAP_BYTES) {
            merged.back().end = std::max(merged.back().end, range.end);
        } else {
            merged.push_back(range);
        }
    }
    return merged;
}

//! The chunks of one row group, [begin, end).
void AddRowGroup(const ColumnChunk *begin, const ColumnChunk *end, uint64_t footer_start,
                 const std::set<std::string> &names, std::vector<ObjectRange> &ranges) {
    uint64_t span_start = UINT64_MAX, span_end = 0, needed = 0;
    std::vector<ObjectRange> chosen;
    for (const ColumnChunk *chunk = begin; chunk != end; chunk++) {
        span_start = std::min(span_start, chunk->start);
        span_end = std::max(span_end, chunk->start + chunk->bytes);
        if (names.count(Lower(chunk->column)) == 0) {
            continue;
        }
        needed += chunk->bytes;
        chosen.push_back({chunk->start, chunk->start + chunk->bytes});
        if (chunk->filter_start > 0) {
            const uint64_t bytes = chunk->filter_bytes > 0 ? chunk->filter_bytes : FILTER_BYTES_GUESSED;
            chosen.push_back({chunk->filter_start,
                              chunk->filter_start + std::min(bytes, footer_start - chunk->filter_start)});
        }
    }
    if (static_cast<double>(needed) > WHOLE_GROUP_SHARE * static_cast<double>(span_end - span_start)) {
        chosen.push_back({span_start, span_end});
    }
    ranges.insert(ranges.end(), chosen.begin(), chosen.end());
}

} // namespace

std::vector<ObjectRange> NeededRanges(const ParquetLayout &layout, uint64_t object_bytes,
                                      const std::vector<std::string> &columns) {
    std::set<std::string> names;
    for (const std::string &column : columns) {
        names.insert(Lower(column));
    }
    const uint64_t tail = std::clamp(2 * (object_bytes / TAIL_SHARE), TAIL_BYTES_MIN, TAIL_BYTES_MAX);
    std::vector<ObjectRange> ranges;
    ranges.push_back(
        {std::min(layout.footer_start, object_bytes - std::min(object_bytes, tail)), object_bytes});
    const ColumnChunk *chunks = layout.chunks.data();
    for (size_t begin = 0, end = 0; begin < layout.chunks.size(); begin = end) {
        while (end < layout.chunks.size() && chunks[end].row_group == chunks[begin].row_group) {
            end++;
        }
        AddRowGroup(chunks + begin, chunks + end, layout.footer_start, names, ranges);
    }
    return Merged(std::move(ranges));
}

} // namespace rawduck_ceph
