//! What is text: every character of one to four bytes, and every way to get one wrong.
#include "gpu/decode/utf8.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace rawduck::gpu::testing {
namespace {

//! Of bytes that lie in no more memory than that.
bool IsText(const std::string &bytes) {
    const std::unique_ptr<u8[]> copy(new u8[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), copy.get());
    return IsUtf8(copy.get(), bytes.size());
}

std::string Encoded(u32 code) {
    const auto byte = [](u32 value) { return std::string(1, static_cast<char>(value)); };
    const auto rest = [&](u32 shift) { return byte(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x80) {
        return byte(code);
    }
    if (code < 0x800) {
        return byte(0xc0 | code >> 6) + rest(0);
    }
    if (code < 0x10000) {
        return byte(0xe0 | code >> 12) + rest(6) + rest(0);
    }
    return byte(0xf0 | code >> 18) + rest(12) + rest(6) + rest(0);
}

TEST(Utf8, EveryCharacterButSurrogates) {
    for (u32 code = 0; code < 0x110000; code++) {
        ASSERT_EQ(IsText(Encoded(code)), code < 0xd800 || code > 0xdfff) << code;
    }
    for (u32 code = 0x110000; code < 0x1fffff; code += 97) {
        ASSERT_FALSE(IsText(Encoded(code))) << code;
    }
}

TEST(Utf8, CharactersAmongOthersAndCutOff) {
    for (const u32 code : {0x41u, 0xe4u, 0x20acu, 0x1f986u}) {
        const std::string character = Encoded(code);
        for (size_t before = 0; before < 20; before++) {
            const std::string ascii(before, 'a');
            EXPECT_TRUE(IsText(ascii + character + ascii));
            for (size_t cut = 1; cut < character.size(); cut++) {
                EXPECT_FALSE(IsText(ascii + character.substr(0, cut)));
                EXPECT_FALSE(IsText(ascii + character.substr(0, cut) + ascii + "b"));
                EXPECT_FALSE(IsText(ascii + character.substr(cut)));
            }
        }
    }
    EXPECT_TRUE(IsText(""));
}

TEST(Utf8, LongerFormsThanNeeded) {
    for (const char *bytes : {"\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x80\x80\x80",
                              "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80", "\xfe", "\xff"}) {
        EXPECT_FALSE(IsText(bytes)) << bytes;
    }
}

} // namespace
} // namespace rawduck::gpu::testing
