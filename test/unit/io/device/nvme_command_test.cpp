#include "io/device/nvme_device.hpp"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>

namespace rawduck {
namespace {

TEST(NvmeCommand, DatasetManagementAlwaysHasRoomForAllRanges) {
    std::vector<DatasetRange> ranges;
    for (const size_t count : {size_t{1}, size_t{3}, DATASET_RANGES_MAX, size_t{2}}) {
        ranges.assign(count, DatasetRange{0, 8, 64});
        AlignedBuffer buffer;
        const nvme_passthru_cmd64 command = MakeDeallocate(ranges.data(), count, 7, buffer);
        EXPECT_EQ(command.nsid, 7u);
        EXPECT_EQ(command.cdw10 + 1, count);
        EXPECT_EQ(command.data_len, 4096u) << "a controller may fetch all of it";
        EXPECT_EQ(command.addr % 4096, 0u);
        const auto *bytes = reinterpret_cast<const char *>(command.addr);
        EXPECT_EQ(std::memcmp(bytes, ranges.data(), count * sizeof(DatasetRange)), 0);
        EXPECT_TRUE(std::all_of(bytes + count * sizeof(DatasetRange), bytes + 4096,
                                [](char byte) { return byte == 0; }));
    }
}

} // namespace
} // namespace rawduck
