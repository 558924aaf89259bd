//! BitPacking: all modes and widths, every kind, parts of segments; what is malformed is said.
#include "gpu/segments.hpp"

#include <gtest/gtest.h>

namespace rawduck::gpu::testing {
namespace {

enum Mode : u32 { CONSTANT = 2, CONSTANT_DELTA = 3, DELTA_FOR = 4, FOR = 5 };

template <class T> constexpr Kind KindOf() {
    return sizeof(T) == 1   ? Kind::INT8
           : sizeof(T) == 2 ? Kind::INT16
           : sizeof(T) == 4 ? Kind::INT32
           : sizeof(T) == 8 ? Kind::INT64
                            : Kind::INT128;
}

//! A segment of groups, and the values that it stands for.
template <class T> struct PackedSegment {
    Writer writer;
    std::vector<u32> table;
    std::vector<T> values;
    std::mt19937_64 random{7};

    PackedSegment() { writer.Put<u64>(0); }

    T Draw() {
        Wide drawn = random();
        return static_cast<T>(drawn << 64 | random());
    }

    void Add(Mode mode, u32 rows, u32 width) {
        const u32 bits = 8 * sizeof(T);
        writer.Align(8);
        table.push_back(mode << 24 | static_cast<u32>(writer.bytes.size()));
        const T base = Draw(), second = mode == CONSTANT_DELTA ? Draw() : static_cast<T>(width);
        writer.Put(base);
        if (mode != CONSTANT) {
            writer.Put(second);
        }
        T sum = Draw();
        if (mode == DELTA_FOR) {
            writer.Put(sum);
        }
        std::vector<T> packed;
        for (u32 i = 0; i < rows; i++) {
            const T number =
                width == 0 ? 0 : static_cast<T>(static_cast<T>(Draw() << (bits - width)) >> (bits - width));
            packed.push_back(number);
            sum = static_cast<T>(sum + number + base);
            values.push_back(mode == CONSTANT         ? base
                             : mode == CONSTANT_DELTA ? static_cast<T>(base + second * static_cast<T>(i))
                             : mode == FOR            ? static_cast<T>(base + number)
                                                      : sum);
        }
        if (mode == FOR || mode == DELTA_FOR) {
            writer.Pack(packed, width);
        }
    }

    std::vector<u8> Finish() {
        Writer whole = writer;
        whole.Align(8);
        for (size_t i = table.size(); i-- > 0;) {
            whole.Put(table[i]);
        }
        whole.PutAt<u64>(0, whole.bytes.size());
        return whole.bytes;
    }

    void ExpectDecoded(u32 first_row, u32 row_count) {
        const Decoded decoded = Decode(Codec::BITPACKING, KindOf<T>(), Finish(),
                                       static_cast<u32>(values.size()), first_row, row_count);
        EXPECT_EQ(decoded.error, 0u);
        const auto first = values.begin() + first_row;
        EXPECT_TRUE(decoded.As<T>() == std::vector<T>(first, first + row_count))
            << sizeof(T) << " bytes, rows " << first_row << " and " << row_count;
    }
};

template <class T> class BitPackingTest : public ::testing::Test {};
using PackedTypes = ::testing::Types<uint8_t, uint16_t, uint32_t, uint64_t, Wide>;
TYPED_TEST_SUITE(BitPackingTest, PackedTypes);

TYPED_TEST(BitPackingTest, EveryWidthInEveryMode) {
    for (const Mode mode : {CONSTANT, CONSTANT_DELTA, DELTA_FOR, FOR}) {
        for (u32 width = 0; width <= 8 * sizeof(TypeParam); width++) {
            PackedSegment<TypeParam> segment;
            segment.Add(mode, 2048, width);
            segment.Add(mode, 333, width);
            segment.ExpectDecoded(0, 2381);
        }
    }
}

TYPED_TEST(BitPackingTest, EdgeSizes) {
    for (const Mode mode : {CONSTANT, CONSTANT_DELTA, DELTA_FOR, FOR}) {
        for (const u32 rows : {1u, 7u, 8u, 9u, 31u, 32u, 33u, 1023u, 1024u, 1025u, 2047u, 2048u}) {
            PackedSegment<TypeParam> segment;
            segment.Add(mode, rows, 3);
            segment.ExpectDecoded(0, rows);
        }
    }
}

TYPED_TEST(BitPackingTest, PartsOfSegments) {
    PackedSegment<TypeParam> segment;
    for (const Mode mode : {DELTA_FOR, FOR, CONSTANT, CONSTANT_DELTA, DELTA_FOR}) {
        segment.Add(mode, 2048, 5);
    }
    segment.Add(DELTA_FOR, 100, 8);
    const u32 rows = 5 * 2048 + 100;
    for (const u32 first : {0u, 1u, 2047u, 2048u, 2049u, 5000u, 10239u, 10240u, rows - 1}) {
        for (const u32 count : {1u, 2u, 2048u, 2049u, 6000u, rows - first}) {
            segment.ExpectDecoded(first, std::min(count, rows - first));
        }
    }
}

TYPED_TEST(BitPackingTest, DamageIsSaidOrHarmless) {
    PackedSegment<TypeParam> segment;
    segment.Add(DELTA_FOR, 2048, 3);
    segment.Add(FOR, 2048, 5);
    segment.Add(CONSTANT_DELTA, 2048, 0);
    segment.Add(CONSTANT, 40, 0);
    DecodeDamaged(Codec::BITPACKING, KindOf<TypeParam>(), segment.Finish(), 3 * 2048 + 40, 7);
}

struct Case {
    const char *name;
    void (*damage)(std::vector<u8> &bytes);
};

void Set(std::vector<u8> &bytes, size_t offset, u32 value, size_t count = 4) {
    std::memcpy(bytes.data() + offset, &value, count);
}

TEST(BitPackingDamage, IsSaid) {
    // Two groups, FOR and DELTA_FOR, with 4 bits: 8 + 8 + 1024 bytes, 12 + 1024, aligned, 8 of table.
    const Case cases[] = {
        {"table ends behind the segment",
         [](auto &bytes) { Set(bytes, 0, static_cast<u32>(bytes.size()) + 1); }},
        {"table ends beyond 4 GiB", [](auto &bytes) { Set(bytes, 4, 1); }},
        {"table ends before it starts", [](auto &bytes) { Set(bytes, 0, 15); }},
        {"no such mode", [](auto &bytes) { bytes[bytes.size() - 1] = 6; }},
        {"mode AUTO", [](auto &bytes) { bytes[bytes.size() - 1] = 1; }},
        {"group starts in the header", [](auto &bytes) { Set(bytes, bytes.size() - 4, 7, 3); }},
        {"group starts behind the next", [](auto &bytes) { Set(bytes, bytes.size() - 4, 1048, 3); }},
        {"group starts behind the table", [](auto &bytes) { Set(bytes, bytes.size() - 8, 0xffffff, 3); }},
        {"width above the type's", [](auto &bytes) { Set(bytes, 12, 33); }},
        {"width in a high byte", [](auto &bytes) { Set(bytes, 12, 0x1004); }},
        {"width that reaches into the next group", [](auto &bytes) { Set(bytes, 12, 5); }},
        {"second group's width too large", [](auto &bytes) { Set(bytes, 1044, 5); }},
        {"shorter by a byte", [](auto &bytes) { bytes.pop_back(); }},
        {"empty", [](auto &bytes) { bytes.clear(); }},
        {"seven bytes", [](auto &bytes) { bytes.resize(7); }},
    };
    for (const Case &damaged : cases) {
        PackedSegment<uint32_t> segment;
        segment.Add(FOR, 2048, 4);
        segment.Add(DELTA_FOR, 2048, 4);
        std::vector<u8> bytes = segment.Finish();
        damaged.damage(bytes);
        EXPECT_EQ(Decode(Codec::BITPACKING, Kind::INT32, bytes, 4096).error, MALFORMED) << damaged.name;
    }
}

TEST(BitPackingDamage, MoreRowsThanGroups) {
    PackedSegment<uint32_t> segment;
    segment.Add(FOR, 2048, 4);
    EXPECT_EQ(Decode(Codec::BITPACKING, Kind::INT32, segment.Finish(), 2049).error, MALFORMED);
}

TEST(BitPackingOfBooleans, OnlyZeroAndOne) {
    const auto decode = [](u8 constant) {
        PackedSegment<uint8_t> segment;
        segment.Add(CONSTANT, 100, 0);
        segment.writer.bytes[8] = constant;
        return Decode(Codec::BITPACKING, Kind::BOOL, segment.Finish(), 100);
    };
    EXPECT_EQ(decode(1).values, std::vector<u8>(100, 1));
    EXPECT_EQ(decode(1).error, 0u);
    EXPECT_EQ(decode(0x80).values, std::vector<u8>(100, 0)) << "what DuckDB writes where all rows are NULL";
    EXPECT_EQ(decode(0x80).error, 0u);
    EXPECT_EQ(decode(2).error, MALFORMED);
}

} // namespace
} // namespace rawduck::gpu::testing
