#include "common/text/size.hpp"

#include "common/error.hpp"
#include "common/units.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace rawduck {
namespace {

TEST(SizeTest, UnitsAreReadAsWritten) {
    EXPECT_EQ(ParseSize("4096", "size"), 4096u);
    EXPECT_EQ(ParseSize("8G", "size"), 8 * GIB);
    EXPECT_EQ(ParseSize("8 GiB", "size"), 8 * GIB);
    EXPECT_EQ(ParseSize(" 256 kib ", "size"), 256 * KIB);
    EXPECT_EQ(ParseSize("1.5m", "size"), 3 * MIB / 2);
    EXPECT_EQ(ParseSize("1GB", "size"), 1000u * 1000 * 1000);
    EXPECT_EQ(ParseSize("2T", "size"), 2048 * GIB);
    EXPECT_EQ(ParseSize("0", "size"), 0u);
}

TEST(SizeTest, NonsenseIsRefusedNamingTheValue) {
    const std::string with_nul("8G\0x", 4);
    for (const std::string &text : std::vector<std::string>{"", " ", "G", "-1", "8X", "8 G B x", "1.5",
                                                            "99999999T", "nan", "0.0001K", with_nul}) {
        try {
            ParseSize(text, "nvme_spill_buffer");
            ADD_FAILURE() << text;
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::INVALID);
            EXPECT_EQ(std::string(error.what()).find("nvme_spill_buffer: "), 0u) << error.what();
        }
    }
}

TEST(SizeTest, TextUsesTheLargestUnitThatDivides) {
    EXPECT_EQ(SizeText(8 * GIB), "8 GiB");
    EXPECT_EQ(SizeText(1536 * KIB), "1536 KiB");
    EXPECT_EQ(SizeText(1000), "1000 bytes");
}

} // namespace
} // namespace rawduck
