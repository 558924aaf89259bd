//! Segments that stock DuckDB 2.0.0 wrote: test/fuzz/make_corpus.py made them, and says of which values.
#include "gpu/segments.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>

namespace rawduck::gpu::testing {
namespace {

constexpr u32 ROWS = 1100;
constexpr size_t HEADER_BYTES = 6; // of the fuzz target's input

std::vector<u8> Read(const std::string &name) {
    std::ifstream file(std::string(RAWDUCK_STOCK_SEGMENTS) + "/" + name, std::ios::binary);
    const std::vector<u8> content{std::istreambuf_iterator<char>(file), {}};
    EXPECT_GT(content.size(), HEADER_BYTES) << name;
    return {content.begin() + HEADER_BYTES, content.end()};
}

template <class T> void Expect(const std::string &name, Codec codec, Kind kind, std::function<T(u32)> value) {
    const Decoded decoded = Decode(codec, kind, Read(name), ROWS);
    EXPECT_EQ(decoded.error, 0u) << name;
    const std::vector<T> values = decoded.As<T>();
    for (u32 row = 0; row < ROWS; row++) {
        ASSERT_TRUE(values[row] == value(row)) << name << ", row " << row;
    }
}

void ExpectStrings(const std::string &name, Codec codec, const std::function<std::string(u32)> &value) {
    const Decoded decoded = Decode(codec, Kind::STRING, Read(name), ROWS);
    EXPECT_EQ(decoded.error, 0u) << name;
    ASSERT_EQ(decoded.strings.size(), ROWS) << name;
    for (u32 row = 0; row < ROWS; row++) {
        ASSERT_EQ(decoded.strings[row], value(row)) << name << ", row " << row;
        ASSERT_EQ(decoded.valid[row], 1);
    }
}

TEST(StockSegments, Numbers) {
    Expect<i64>("uncompressed", Codec::UNCOMPRESSED, Kind::INT64, [](u32 i) { return i * 3; });
    Expect<i32>("bitpacking-for", Codec::BITPACKING, Kind::INT32, [](u32 i) { return i * 7919 % 1000; });
    Expect<i64>("bitpacking-delta", Codec::BITPACKING, Kind::INT64, [](u32 i) { return i * 5 + i % 3; });
    Expect<u16>("bitpacking-constant-delta", Codec::BITPACKING, Kind::INT16, [](u32 i) { return i; });
    Expect<Wide>("bitpacking-wide", Codec::BITPACKING, Kind::INT128,
                 [](u32 i) { return static_cast<Wide>(i) << 80; });
    Expect<u8>("bitpacking-boolean", Codec::BITPACKING, Kind::BOOL, [](u32 i) { return i % 3 == 0; });
    Expect<i32>("rle", Codec::RLE, Kind::INT32, [](u32 i) { return i / 50; });
}

TEST(StockSegments, Floats) {
    const auto hundredths = [](u32 i) { return static_cast<double>(i * 7919 % 1000) / 100; };
    Expect<double>("alp", Codec::ALP, Kind::FLOAT64, hundredths);
    Expect<float>("alp-float", Codec::ALP, Kind::FLOAT32,
                  [&](u32 i) { return static_cast<float>(hundredths(i)); });
    const Decoded decoded = Decode(Codec::ALPRD, Kind::FLOAT64, Read("alprd"), ROWS);
    EXPECT_EQ(decoded.error, 0u);
    for (u32 row = 0; row < ROWS; row++) {
        EXPECT_DOUBLE_EQ(decoded.As<double>()[row], std::sin(row)); // of another mathematical library
    }
}

TEST(StockSegments, Strings) {
    ExpectStrings("uncompressed-strings", Codec::UNCOMPRESSED,
                  [](u32 i) { return "s" + std::to_string(i % 90); });
    ExpectStrings("dictionary", Codec::DICT_FSST, [](u32 i) { return "value " + std::to_string(i % 50); });
    ExpectStrings("dictionary-fsst", Codec::DICT_FSST,
                  [](u32 i) { return "http://example.com/" + std::to_string(i % 900) + "/page"; });
}

TEST(StockSegments, Validity) {
    Expect<u8>("roaring-arrays", Codec::ROARING, Kind::VALIDITY, [](u32 i) { return i % 200 != 7; });
    Expect<u8>("roaring-runs", Codec::ROARING, Kind::VALIDITY, [](u32 i) { return i / 90 % 2 != 0; });
    Expect<u8>("roaring-bits", Codec::ROARING, Kind::VALIDITY, [](u32 i) { return i * 7919 % 97 % 2 != 0; });
}

} // namespace
} // namespace rawduck::gpu::testing
