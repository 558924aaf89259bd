#include "ceph/parquet/column_ranges.hpp"

#include <gtest/gtest.h>

namespace rawduck_ceph {
namespace {

constexpr uint64_t CHUNK_BYTES = 1 << 20;

//! Two row groups with the columns a, B and c of 1 MiB each, from offset 4, and the footer.
ParquetLayout SomeLayout() {
    ParquetLayout layout;
    uint64_t offset = 4;
    for (size_t group = 0; group < 2; group++) {
        for (const char *name : {"a", "B", "c"}) {
            layout.chunks.push_back({group, name, offset, CHUNK_BYTES, 0, 0});
            offset += CHUNK_BYTES;
        }
    }
    layout.footer_start = offset;
    return layout;
}

std::string Text(const std::vector<ObjectRange> &ranges) {
    std::string text;
    for (const ObjectRange &range : ranges) {
        text += std::to_string(range.start) + "-" + std::to_string(range.end) + " ";
    }
    return text;
}

} // namespace

TEST(ColumnRangesTest, ChunksOfTheColumnsAndTheEnd) {
    const ParquetLayout layout = SomeLayout();
    const uint64_t size = layout.footer_start + 1000;
    const uint64_t tail = size - 32 * 1024;
    EXPECT_EQ(Text(NeededRanges(layout, size, {"A"})),
              "4-1048580 3145732-4194308 " + std::to_string(tail) + "-" + std::to_string(size) + " ");
    EXPECT_EQ(Text(NeededRanges(layout, size, {"nothing"})),
              std::to_string(tail) + "-" + std::to_string(size) + " ");
    EXPECT_EQ(Text(NeededRanges(layout, size, {"a", "b", "C"})), "4-" + std::to_string(size) + " ");
    EXPECT_EQ(Text(NeededRanges(layout, 2000 * CHUNK_BYTES, {})),
              std::to_string(layout.footer_start) + "-" + std::to_string(2000 * CHUNK_BYTES) + " ");
}

TEST(ColumnRangesTest, FiltersAndWholeRowGroups) {
    ParquetLayout layout = SomeLayout();
    layout.chunks[0].filter_start = 5 * CHUNK_BYTES;
    layout.chunks[0].filter_bytes = 100;
    layout.chunks[3].bytes = 40 * CHUNK_BYTES; // of a group that nothing but it makes large
    layout.chunks[4].start = layout.chunks[5].start = layout.chunks[3].start + 40 * CHUNK_BYTES;
    layout.footer_start = 46 * CHUNK_BYTES;
    const uint64_t size = 46 * CHUNK_BYTES + 100;
    const std::string text = Text(NeededRanges(layout, size, {"a"}));
    EXPECT_EQ(text, "4-1048580 3145732-" + std::to_string(3145732 + 41 * CHUNK_BYTES) + " " +
                        std::to_string(size - 2 * (size / 1000)) + "-" + std::to_string(size) + " ");
}

} // namespace rawduck_ceph
