//! ALP and ALPRD: exact values, exceptions, vectors stored as they are; what is malformed is said.
#include "gpu/segments.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace rawduck::gpu::testing {
namespace {

template <class T> struct AlpType;
template <> struct AlpType<double> {
    using Bits = u64;
    static constexpr Kind KIND = Kind::FLOAT64;
};
template <> struct AlpType<float> {
    using Bits = u32;
    static constexpr Kind KIND = Kind::FLOAT32;
};

//! Vectors of 1024 rows and what they stand for, bit for bit.
template <class T> struct AlpSegment {
    using Bits = typename AlpType<T>::Bits;
    Writer writer;
    std::vector<u32> table;
    std::vector<Bits> values;
    std::mt19937_64 random{11};

    AlpSegment() { writer.Put<u32>(0); }

    void Expect(T value) {
        Bits bits;
        std::memcpy(&bits, &value, sizeof(bits));
        values.push_back(bits);
    }

    void AddUncompressed(u32 rows, bool is_alprd) {
        table.push_back(static_cast<u32>(writer.bytes.size()));
        is_alprd ? writer.Put<u16>(65535) : writer.Put<u8>(255);
        for (u32 i = 0; i < rows; i++) {
            writer.Put(static_cast<Bits>(random()));
            values.push_back(static_cast<Bits>(0));
            std::memcpy(&values.back(), writer.bytes.data() + writer.bytes.size() - sizeof(Bits),
                        sizeof(Bits));
        }
    }

    void AddAlp(u32 rows, u8 exponent, u8 factor, u32 width, u32 exceptions) {
        table.push_back(static_cast<u32>(writer.bytes.size()));
        const u64 base = random() % 100000 - 50000; // wraps around below 0
        writer.Put(exponent);
        writer.Put(factor);
        writer.Put(static_cast<u16>(exceptions));
        writer.Put(base);
        writer.Put(static_cast<u8>(width));
        std::vector<u64> packed;
        const size_t first = values.size();
        for (u32 i = 0; i < rows; i++) {
            packed.push_back(width == 0 ? 0 : random() >> (64 - width));
            const T factors = static_cast<T>(std::stod("1e" + std::to_string(factor)));
            const T fraction = sizeof(T) == 8 ? static_cast<T>(std::stod("1e-" + std::to_string(exponent)))
                                              : static_cast<T>(std::stof("1e-" + std::to_string(exponent)));
            Expect(static_cast<T>(static_cast<int64_t>(packed.back() + base)) * factors * fraction);
        }
        writer.Pack(packed, width);
        PutExceptions<Bits>(first, rows, exceptions, [](Bits, Bits exception) { return exception; });
    }

    void StartAlpRd(u8 right, u8 left, const std::vector<u16> &dictionary) {
        writer.Put(right);
        writer.Put(left);
        writer.Put(static_cast<u8>(dictionary.size()));
        for (const u16 entry : dictionary) {
            writer.Put(entry);
        }
    }

    void AddAlpRd(u32 rows, u32 right, u32 left, std::vector<u16> dictionary, u32 exceptions) {
        table.push_back(static_cast<u32>(writer.bytes.size()));
        writer.Put(static_cast<u16>(exceptions));
        std::vector<u64> lefts, rights;
        const size_t first = values.size();
        dictionary.resize(8);
        for (u32 i = 0; i < rows; i++) {
            lefts.push_back(left == 0 ? 0 : random() >> (64 - left));
            rights.push_back(random() >> (64 - right));
            values.push_back(
                static_cast<Bits>(static_cast<Bits>(dictionary[lefts.back()]) << right | rights.back()));
        }
        writer.Pack(lefts, left);
        writer.Pack(rights, right);
        const Bits mask = (static_cast<Bits>(1) << right) - 1;
        PutExceptions<u16>(first, rows, exceptions, [=](Bits value, u16 exception) {
            return static_cast<Bits>(static_cast<Bits>(exception) << right | (value & mask));
        });
    }

    template <class E, class Merge> void PutExceptions(size_t first, u32 rows, u32 exceptions, Merge merge) {
        std::vector<u16> positions;
        for (u32 i = 0; i < exceptions; i++) {
            positions.push_back(static_cast<u16>(i * rows / exceptions));
            const E exception = static_cast<E>(random());
            writer.Put(exception);
            values[first + positions.back()] = merge(values[first + positions.back()], exception);
        }
        for (const u16 position : positions) {
            writer.Put(position);
        }
    }

    std::vector<u8> Finish() const {
        Writer whole = writer;
        whole.Align(8);
        for (size_t i = table.size(); i-- > 0;) {
            whole.Put(table[i]);
        }
        whole.PutAt<u32>(0, static_cast<u32>(whole.bytes.size()));
        return whole.bytes;
    }

    void ExpectDecoded(Codec codec) {
        const u32 rows = static_cast<u32>(values.size());
        for (const u32 first : {0u, 1u, 1023u % rows, 1024u % rows, rows / 2, rows - 1}) {
            const Decoded decoded = Decode(codec, AlpType<T>::KIND, Finish(), rows, first, rows - first);
            EXPECT_EQ(decoded.error, 0u);
            EXPECT_EQ(decoded.template As<Bits>(), std::vector<Bits>(values.begin() + first, values.end()))
                << first;
        }
    }
};

template <class T> class AlpTest : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AlpTest, Floats);

TYPED_TEST(AlpTest, EveryExponentAndWidth) {
    const u8 most_exponent = sizeof(TypeParam) == 8 ? 18 : 10;
    for (u8 exponent = 0; exponent <= most_exponent; exponent++) {
        AlpSegment<TypeParam> segment;
        for (u8 factor = 0; factor <= exponent; factor++) {
            segment.AddAlp(1024, exponent, factor, (exponent * 7 + factor * 5) % 65, factor * 20);
        }
        segment.AddAlp(77, exponent, exponent, 64, 77);
        segment.ExpectDecoded(Codec::ALP);
    }
}

TYPED_TEST(AlpTest, StoredAsTheyAre) {
    AlpSegment<TypeParam> segment;
    segment.AddUncompressed(1024, false);
    segment.AddAlp(1024, 3, 2, 11, 5);
    segment.AddUncompressed(3, false);
    segment.ExpectDecoded(Codec::ALP);
}

TYPED_TEST(AlpTest, RightAndLeftParts) {
    const u32 bits = 8 * sizeof(TypeParam);
    for (u32 left = 0; left <= 3; left++) {
        for (const u32 right : {1u, bits / 2, bits - 16, bits - 1}) {
            const std::vector<u16> dictionary = {0x3ff0, 0xbff0, 7, 0xffff, 1};
            AlpSegment<TypeParam> segment;
            segment.StartAlpRd(static_cast<u8>(right), static_cast<u8>(left), dictionary);
            segment.AddAlpRd(1024, right, left, dictionary, 0);
            segment.AddUncompressed(1024, true);
            segment.AddAlpRd(1000, right, left, dictionary, 300);
            segment.ExpectDecoded(Codec::ALPRD);
        }
    }
}

void ExpectMalformed(Codec codec, std::vector<u8> bytes, size_t offset, u8 value, const char *what) {
    bytes[offset] = value;
    EXPECT_EQ(Decode(codec, Kind::FLOAT64, bytes, 1034).error, MALFORMED) << what;
}

TEST(AlpDamage, IsSaid) {
    AlpSegment<double> segment;
    segment.AddAlp(1024, 3, 2, 11, 5);
    segment.AddAlp(10, 3, 2, 11, 2);
    const std::vector<u8> bytes = segment.Finish();
    const size_t positions = 4 + 13 + 1024 * 11 / 8 + 5 * 8;
    EXPECT_EQ(Decode(Codec::ALP, Kind::FLOAT64, bytes, 1034).error, 0u);
    ExpectMalformed(Codec::ALP, bytes, 4, 19, "exponent");
    ExpectMalformed(Codec::ALP, bytes, 4, 1, "factor above the exponent");
    ExpectMalformed(Codec::ALP, bytes, 7, 5, "more exceptions than rows");
    ExpectMalformed(Codec::ALP, bytes, 6, 6, "exceptions that reach into the next vector");
    ExpectMalformed(Codec::ALP, bytes, 16, 65, "width above 64");
    ExpectMalformed(Codec::ALP, bytes, 16, 12, "width that reaches into the next vector");
    ExpectMalformed(Codec::ALP, bytes, positions + 1, 4, "an exception's row");
    ExpectMalformed(Codec::ALP, bytes, bytes.size() - 4, 3, "a vector in the header");
    ExpectMalformed(Codec::ALP, bytes, bytes.size() - 1, 1, "a vector behind the table");
    ExpectMalformed(Codec::ALP, bytes, 2, 1, "a table behind the segment");
    ExpectMalformed(Codec::ALP, bytes, 4, 255, "stored as they are, and too short");
    EXPECT_EQ(Decode(Codec::ALP, Kind::FLOAT64, bytes, 3000).error, MALFORMED) << "more rows than vectors";
    EXPECT_EQ(Decode(Codec::ALP, Kind::FLOAT64, {}, 5).error, MALFORMED);
    DecodeDamaged(Codec::ALP, Kind::FLOAT64, bytes, 1034, 3);
}

TEST(AlpRdDamage, IsSaid) {
    AlpSegment<double> segment;
    segment.StartAlpRd(48, 3, {1, 2, 3, 4, 5, 6, 7, 8});
    segment.AddAlpRd(1024, 48, 3, {1, 2, 3, 4, 5, 6, 7, 8}, 5);
    segment.AddAlpRd(10, 48, 3, {1, 2, 3, 4, 5, 6, 7, 8}, 2);
    const std::vector<u8> bytes = segment.Finish();
    const size_t vector = 7 + 16, positions = vector + 2 + 1024 * 51 / 8 + 5 * 2;
    EXPECT_EQ(Decode(Codec::ALPRD, Kind::FLOAT64, bytes, 1034).error, 0u);
    ExpectMalformed(Codec::ALPRD, bytes, 4, 64, "right width");
    ExpectMalformed(Codec::ALPRD, bytes, 4, 49, "right width that reaches into the next vector");
    ExpectMalformed(Codec::ALPRD, bytes, 5, 4, "left width");
    ExpectMalformed(Codec::ALPRD, bytes, 6, 9, "entries of the dictionary");
    ExpectMalformed(Codec::ALPRD, bytes, vector, 6, "exceptions that reach into the next vector");
    ExpectMalformed(Codec::ALPRD, bytes, vector + 1, 5, "more exceptions than rows");
    ExpectMalformed(Codec::ALPRD, bytes, positions + 1, 4, "an exception's row");
    ExpectMalformed(Codec::ALPRD, bytes, bytes.size() - 4, 22, "a vector in the dictionary");
    ExpectMalformed(Codec::ALPRD, bytes, 2, 1, "a table behind the segment");
    EXPECT_EQ(Decode(Codec::ALPRD, Kind::FLOAT64, bytes, 3000).error, MALFORMED) << "more rows than vectors";
    EXPECT_EQ(Decode(Codec::ALPRD, Kind::FLOAT64, {}, 5).error, MALFORMED);
    DecodeDamaged(Codec::ALPRD, Kind::FLOAT64, bytes, 1034, 7);
}

} // namespace
} // namespace rawduck::gpu::testing
