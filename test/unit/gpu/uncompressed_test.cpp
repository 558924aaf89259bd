//! Values that are stored as they are, constants, and the checksum of blocks.
#include "gpu/segments.hpp"

#include <gtest/gtest.h>

namespace rawduck::gpu::testing {
namespace {

std::vector<u8> RandomBytes(size_t count) {
    std::mt19937_64 random(count);
    std::vector<u8> bytes(count);
    for (u8 &byte : bytes) {
        byte = static_cast<u8>(random());
    }
    return bytes;
}

TEST(Uncompressed, NumbersOfEveryWidth) {
    const Kind kinds[] = {Kind::INT8,   Kind::INT16,   Kind::INT32,  Kind::INT64,
                          Kind::INT128, Kind::FLOAT32, Kind::FLOAT64};
    for (const Kind kind : kinds) {
        const u32 width = WidthOf(kind), rows = 5000;
        const std::vector<u8> segment = RandomBytes(rows * width);
        EXPECT_EQ(Decode(Codec::UNCOMPRESSED, kind, segment, rows).values, segment);
        const Decoded part = Decode(Codec::UNCOMPRESSED, kind, segment, rows, 2047, 2050);
        EXPECT_EQ(part.values,
                  std::vector<u8>(segment.begin() + 2047 * width, segment.begin() + 4097 * width));
        EXPECT_EQ(part.error, 0u);
        const std::vector<u8> short_by_one(segment.begin(), segment.end() - 1);
        EXPECT_EQ(Decode(Codec::UNCOMPRESSED, kind, short_by_one, rows).error, MALFORMED);
        EXPECT_EQ(Decode(Codec::UNCOMPRESSED, kind, short_by_one, rows, 0, 4096).error, 0u);
    }
}

TEST(Uncompressed, Booleans) {
    const Decoded decoded = Decode(Codec::UNCOMPRESSED, Kind::BOOL, {0, 1, 0x80, 1}, 4);
    EXPECT_EQ(decoded.values, (std::vector<u8>{0, 1, 0, 1}));
    EXPECT_EQ(decoded.error, 0u);
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::BOOL, {0, 1, 3, 1}, 4).error, MALFORMED);
}

TEST(Uncompressed, Validity) {
    for (const u32 rows : {1u, 7u, 8u, 9u, 63u, 64u, 65u, 2047u, 2048u, 2049u, 10000u}) {
        const std::vector<u8> segment = RandomBytes((rows + 7) / 8);
        for (const u32 first : {0u, rows / 2, rows - 1}) {
            const Decoded decoded =
                Decode(Codec::UNCOMPRESSED, Kind::VALIDITY, segment, rows, first, rows - first);
            EXPECT_EQ(decoded.error, 0u);
            for (u32 row = first; row < rows; row++) {
                ASSERT_EQ(decoded.values[row - first], segment[row / 8] >> (row % 8) & 1)
                    << rows << " " << row;
            }
        }
        const std::vector<u8> short_by_one(segment.begin(), segment.end() - 1);
        EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::VALIDITY, short_by_one, rows).error, MALFORMED);
    }
}

//! As DuckDB writes them: the strings from the end of the segment backwards. `gap` bytes are unused before them.
std::vector<u8> StringSegment(const std::vector<std::string> &strings, u32 gap = 0) {
    Writer writer;
    std::string all;
    writer.Put<u32>(0);
    writer.Put<u32>(0);
    for (const std::string &string : strings) {
        all.insert(0, string);
        writer.Put<i32>(static_cast<i32>(all.size()));
    }
    writer.bytes.resize(writer.bytes.size() + gap);
    writer.bytes.insert(writer.bytes.end(), all.begin(), all.end());
    writer.PutAt<u32>(0, static_cast<u32>(all.size()));
    writer.PutAt<u32>(4, static_cast<u32>(writer.bytes.size()));
    return writer.bytes;
}

std::vector<std::string> SomeStrings(u32 count) {
    std::vector<std::string> strings;
    for (u32 i = 0; i < count; i++) {
        strings.emplace_back(i % 7 == 3 ? 0 : i % 40, static_cast<char>('a' + i % 26));
    }
    return strings;
}

TEST(UncompressedStrings, AreDecoded) {
    for (const u32 rows : {1u, 2u, 100u, 2047u, 2048u, 2049u, 5000u}) {
        const std::vector<std::string> strings = SomeStrings(rows);
        for (const u32 first : {0u, rows / 2, rows - 1}) {
            const Decoded decoded = Decode(Codec::UNCOMPRESSED, Kind::STRING,
                                           StringSegment(strings, rows % 13), rows, first, rows - first);
            EXPECT_EQ(decoded.error, 0u);
            EXPECT_EQ(decoded.strings, std::vector<std::string>(strings.begin() + first, strings.end()));
        }
    }
}

TEST(UncompressedStrings, TextIsUtf8) {
    const std::vector<u8> segment = StringSegment({"abc", "gr\xc3\xb6\xc3\x9f", "bad \xff", "z"});
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::STRING, segment, 4, 0, 4, true).error, NOT_TEXT);
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::STRING, segment, 4, 0, 2, true).error, 0u);
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::STRING, segment, 4).error, 0u) << "BLOB may be anything";
}

TEST(UncompressedStrings, OfOtherBlocksAreSaid) {
    std::vector<u8> segment = StringSegment({"abc", "twelve bytes", "", "z"});
    const auto set = [&](u32 row, i32 number) { std::memcpy(segment.data() + 8 + 4 * row, &number, 4); };
    set(1, -15);
    set(2, -15); // NULL behind it: the same number
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::STRING, segment, 4).error, OVERFLOW_STRING);
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::STRING, segment, 4, 2, 2).error, 0u);
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::STRING, segment, 4, 2, 2).strings,
              (std::vector<std::string>{"", "z"}));
    set(1, -14);
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::STRING, segment, 4, 1, 1).error, MALFORMED);
}

TEST(UncompressedStrings, DamageIsSaid) {
    const std::vector<u8> segment = StringSegment({"abc", "defgh", "i"});
    const auto decode = [&](size_t offset, u32 value) {
        std::vector<u8> damaged = segment;
        std::memcpy(damaged.data() + offset, &value, 4);
        return Decode(Codec::UNCOMPRESSED, Kind::STRING, damaged, 3).error;
    };
    EXPECT_EQ(decode(4, static_cast<u32>(segment.size()) + 1), MALFORMED) << "strings end behind the segment";
    EXPECT_EQ(decode(4, 19), MALFORMED) << "strings end among the numbers";
    EXPECT_EQ(decode(8, 10), MALFORMED) << "numbers that fall";
    EXPECT_EQ(decode(16, 10), MALFORMED) << "a string before the strings";
    EXPECT_EQ(decode(12, 0x80000000), MALFORMED) << "the lowest number of all";
    EXPECT_EQ(Decode(Codec::UNCOMPRESSED, Kind::STRING, segment, 100).error, MALFORMED)
        << "more rows than numbers";
    DecodeDamaged(Codec::UNCOMPRESSED, Kind::STRING, StringSegment(SomeStrings(300)), 300);
}

TEST(Constant, FillsTheRows) {
    for (const Kind kind : {Kind::INT8, Kind::INT16, Kind::INT32, Kind::INT64, Kind::INT128, Kind::FLOAT32,
                            Kind::FLOAT64, Kind::VALIDITY, Kind::BOOL}) {
        SegmentTask task = {};
        u32 error = 0;
        std::vector<u8> values(static_cast<size_t>(3000) * WidthOf(kind));
        task.codec = Codec::CONSTANT;
        task.kind = kind;
        task.segment_rows = 5000;
        task.first_row = 1500;
        task.row_count = 3000;
        for (u32 i = 0; i < 16; i++) {
            task.constant[i] = static_cast<u8>(i + 1);
        }
        task.values = values.data();
        task.error = &error;
        RunPhase(task, Phase::VALUES);
        EXPECT_EQ(error, 0u);
        for (size_t i = 0; i < values.size(); i++) {
            ASSERT_EQ(values[i], i % WidthOf(kind) + 1);
        }
    }
}

TEST(Constant, BooleanThatIsNone) {
    SegmentTask task = {};
    u32 error = 0;
    u8 value = 9;
    task.codec = Codec::CONSTANT;
    task.kind = Kind::BOOL;
    task.segment_rows = task.row_count = 1;
    task.constant[0] = 2;
    task.values = &value;
    task.error = &error;
    RunPhase(task, Phase::VALUES);
    EXPECT_EQ(error, MALFORMED);
}

u64 ChecksumOf(const std::vector<u8> &block) {
    u64 sum = 5381;
    for (size_t i = 8; i < block.size(); i += 8) {
        u64 word;
        std::memcpy(&word, block.data() + i, 8);
        sum ^= word * 0xbf58476d1ce4e5b9ull;
    }
    return sum;
}

TEST(BlockChecksum, EveryByteCounts) {
    for (const size_t size : {16u, 24u, 4096u, 16384u, 262144u}) {
        std::vector<u8> block = RandomBytes(size);
        const u64 sum = ChecksumOf(block);
        std::memcpy(block.data(), &sum, 8);
        const auto check = [&] {
            u64 differences[2] = {};
            for (const size_t misaligned : {0u, 3u}) {
                const std::unique_ptr<u8[]> exact(new u8[size + misaligned]);
                std::memcpy(exact.get() + misaligned, block.data(), size);
                const ChecksumTask task = {exact.get() + misaligned, size, &differences[misaligned != 0]};
                LaunchChecksumsOnHost(&task, 1);
            }
            EXPECT_EQ(differences[0], differences[1]);
            return differences[0];
        };
        EXPECT_EQ(check(), 0u) << size;
        for (size_t i = 0; i < size; i += size / 16 + 1) {
            block[i] ^= 0x10;
            EXPECT_NE(check(), 0u) << size << " " << i;
            block[i] ^= 0x10;
        }
    }
}

TEST(BlockChecksum, OddSizesAreRefused) {
    for (const u64 size : {0u, 7u, 12u}) {
        u8 block[16] = {};
        u64 difference = 0;
        const ChecksumTask task = {block, size, &difference};
        LaunchChecksumsOnHost(&task, 1);
        EXPECT_NE(difference, 0u);
    }
}

TEST(Kernels, HaveNames) {
    EXPECT_STREQ(KernelName(Codec::BITPACKING, Kind::INT64, Phase::VALUES), "bitpacking_64");
    EXPECT_STREQ(KernelName(Codec::UNCOMPRESSED, Kind::FLOAT64, Phase::VALUES), "uncompressed_64");
    EXPECT_EQ(KernelName(Codec::BITPACKING, Kind::INT64, Phase::BYTES), nullptr);
    EXPECT_FALSE(CanDecode(Codec::BITPACKING, Kind::STRING));
    EXPECT_TRUE(CanDecode(Codec::CONSTANT, Kind::VALIDITY));
}

} // namespace
} // namespace rawduck::gpu::testing
