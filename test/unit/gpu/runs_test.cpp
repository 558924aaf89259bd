//! RLE and Roaring: runs, arrays and bitsets of every size; what is malformed is said.
#include "gpu/segments.hpp"

#include <gtest/gtest.h>

namespace rawduck::gpu::testing {
namespace {

template <class T> std::vector<u8> RunSegment(const std::vector<T> &values, const std::vector<u16> &lengths) {
    Writer writer;
    writer.Put<u64>(0);
    for (const T value : values) {
        writer.Put(value);
    }
    writer.Align(8);
    writer.PutAt<u64>(0, writer.bytes.size());
    for (const u16 length : lengths) {
        writer.Put(length);
    }
    return writer.bytes;
}

TEST(Rle, ManyAndLongRuns) {
    std::mt19937_64 random(3);
    for (const u32 run_count : {1u, 2u, 255u, 2048u, 2049u, 9000u}) {
        std::vector<u64> values, expected;
        std::vector<u16> lengths;
        for (u32 i = 0; i < run_count; i++) {
            values.push_back(random());
            lengths.push_back(static_cast<u16>(i % 500 == 7 ? 65535 : i % 11 == 3 ? 0 : 1 + random() % 9));
            expected.insert(expected.end(), lengths.back(), values.back());
        }
        const std::vector<u8> segment = RunSegment(values, lengths);
        const u32 rows = static_cast<u32>(expected.size());
        for (const u32 first : {0u, rows / 3, rows - 1}) {
            const Decoded decoded = Decode(Codec::RLE, Kind::INT64, segment, rows, first, rows - first);
            EXPECT_EQ(decoded.error, 0u);
            EXPECT_EQ(decoded.As<u64>(), std::vector<u64>(expected.begin() + first, expected.end()))
                << run_count;
        }
    }
}

TEST(Rle, EveryKind) {
    const auto decode = [](Kind kind, const std::vector<u8> &segment) {
        const Decoded decoded = Decode(Codec::RLE, kind, segment, 5);
        EXPECT_EQ(decoded.error, 0u);
        return decoded;
    };
    EXPECT_EQ(decode(Kind::INT8, RunSegment<u8>({9, 7}, {2, 3})).values, (std::vector<u8>{9, 9, 7, 7, 7}));
    EXPECT_EQ(decode(Kind::BOOL, RunSegment<u8>({1, 0x80}, {2, 3})).values, (std::vector<u8>{1, 1, 0, 0, 0}));
    EXPECT_EQ(decode(Kind::INT16, RunSegment<u16>({900, 7}, {2, 3})).As<u16>()[1], 900);
    EXPECT_EQ(decode(Kind::FLOAT32, RunSegment<float>({1.5f, 7}, {2, 3})).As<float>()[1], 1.5f);
    EXPECT_EQ(decode(Kind::FLOAT64, RunSegment<double>({1.5, 7}, {2, 3})).As<double>()[1], 1.5);
    const Wide wide = static_cast<Wide>(3) << 100;
    EXPECT_TRUE(decode(Kind::INT128, RunSegment<Wide>({wide, 7}, {2, 3})).As<Wide>()[1] == wide);
}

TEST(Rle, DamageIsSaid) {
    const std::vector<u8> segment = RunSegment<u32>({5, 6, 7}, {10, 20, 30}); // lengths at 24
    const auto decode = [](std::vector<u8> bytes, u32 rows) {
        return Decode(Codec::RLE, Kind::INT32, bytes, rows).error;
    };
    EXPECT_EQ(decode(segment, 60), 0u);
    EXPECT_EQ(decode(segment, 30), 0u) << "runs behind the rows do not matter";
    EXPECT_EQ(decode(segment, 61), MALFORMED) << "too few rows";
    EXPECT_EQ(decode(segment, 59), MALFORMED) << "a run that goes on behind the rows";
    std::vector<u8> damaged = segment;
    damaged[0] = 7;
    EXPECT_EQ(decode(damaged, 60), MALFORMED) << "lengths in the header";
    damaged[0] = static_cast<u8>(segment.size() + 1);
    EXPECT_EQ(decode(damaged, 60), MALFORMED) << "lengths behind the segment";
    damaged[0] = 16; // two values before the lengths
    EXPECT_EQ(decode(damaged, 60), MALFORMED);
    EXPECT_EQ(decode(std::vector<u8>(segment.begin(), segment.end() - 1), 60), MALFORMED);
    EXPECT_EQ(decode({}, 60), MALFORMED);
    DecodeDamaged(Codec::RLE, Kind::INT32, RunSegment<u32>({5, 6, 7}, {10, 20, 30}), 60);
}

//! Containers of 2048 rows, as DuckDB writes them, and which rows are set.
struct Containers {
    Writer data;
    std::vector<u8> types, run_counts, other_counts, set;

    Containers() { data.Put<u64>(0); }

    void Bitset(const std::vector<u8> &rows) {
        types.push_back(0);
        other_counts.push_back(249);
        data.Align(8);
        std::vector<u8> padded = rows;
        padded.resize((rows.size() + 63) / 64 * 64);
        data.Pack(padded, 1);
        set.insert(set.end(), rows.begin(), rows.end());
    }

    //! The low 8 bits, behind counts of how many numbers lie in each 256.
    void PutParts(const std::vector<u32> &numbers) {
        const size_t counts = data.bytes.size();
        data.bytes.resize(counts + 8);
        for (const u32 number : numbers) {
            if (number < 2048) {
                data.bytes[counts + number / 256]++;
            }
            data.Put(static_cast<u8>(number));
        }
    }

    void Array(const std::vector<u32> &numbers, bool is_inverted, u32 rows) {
        types.push_back(is_inverted);
        other_counts.push_back(static_cast<u8>(numbers.size()));
        if (numbers.size() < 8) {
            data.Align(2);
            for (const u32 number : numbers) {
                data.Put(static_cast<u16>(number));
            }
        } else {
            PutParts(numbers);
        }
        const size_t start = set.size();
        set.resize(start + rows, is_inverted);
        for (const u32 number : numbers) {
            set[start + number] = !is_inverted;
        }
    }

    //! From the first of each pair to before the second one.
    void Runs(const std::vector<std::pair<u32, u32>> &runs, u32 rows) {
        types.push_back(3);
        run_counts.push_back(static_cast<u8>(runs.size()));
        std::vector<u32> numbers;
        const size_t start = set.size();
        set.resize(start + rows, 1);
        data.bytes.resize(runs.size() < 4 ? (data.bytes.size() + 3) / 4 * 4 : data.bytes.size());
        for (const auto &[begin, end] : runs) {
            std::fill(set.begin() + start + begin, set.begin() + start + end, 0);
            numbers.insert(numbers.end(), {begin, end});
            if (runs.size() < 4) {
                data.Put(static_cast<u16>(begin));
                // One too many at the end of a container, as DuckDB has it.
                data.Put(static_cast<u16>(end - begin - (end == rows ? 0 : 1)));
            }
        }
        if (runs.size() >= 4) {
            PutParts(numbers);
        }
    }

    std::vector<u8> Finish() const {
        Writer whole = data;
        whole.Align(8);
        whole.PutAt<u64>(0, whole.bytes.size() - 8);
        whole.Pack(types, 2);
        whole.Pack(run_counts, 7);
        for (const u8 count : other_counts) {
            whole.Put(count);
        }
        return whole.bytes;
    }
};

std::vector<std::pair<u32, u32>> EveryRun(u32 count, u32 rows) {
    std::vector<std::pair<u32, u32>> runs;
    for (u32 i = 0; i < count; i++) {
        const u32 begin = i * (rows / count);
        runs.emplace_back(begin, i + 1 == count ? rows : begin + 1 + i % (rows / count - 1));
    }
    return runs;
}

std::vector<u32> EveryNumber(u32 count, u32 rows) {
    std::vector<u32> numbers;
    for (u32 i = 0; i < count; i++) {
        numbers.push_back(i * (rows / count) + (i % 2 ? rows / count - 1 : 0));
    }
    return numbers;
}

Containers OneOfEach(u32 last_rows) {
    Containers containers;
    std::mt19937_64 random(1);
    std::vector<u8> bits(2048);
    for (u8 &bit : bits) {
        bit = random() % 2;
    }
    containers.Array({5, 2047}, true, 2048);
    containers.Bitset(bits);
    containers.Runs({{0, 1}, {2, 2048}}, 2048);
    containers.Array({}, true, 2048);
    containers.Array({}, false, 2048);
    containers.Array(EveryNumber(8, 2048), false, 2048);
    containers.Runs(EveryRun(4, 2048), 2048);
    containers.Array(EveryNumber(7, 2048), false, 2048);
    containers.Array(EveryNumber(247, 2048), true, 2048);
    containers.Runs(EveryRun(123, 2048), 2048);
    containers.Runs({}, 2048);
    containers.Runs(EveryRun(1, last_rows), last_rows);
    containers.Bitset(std::vector<u8>(bits.begin(), bits.begin() + last_rows));
    return containers;
}

TEST(RoaringValidity, EveryContainer) {
    Containers containers = OneOfEach(2048);
    const u32 rows = static_cast<u32>(containers.set.size());
    for (const u32 first : {0u, 1u, 2047u, 2048u, 9000u, rows - 1}) {
        const Decoded decoded =
            Decode(Codec::ROARING, Kind::VALIDITY, containers.Finish(), rows, first, rows - first);
        EXPECT_EQ(decoded.error, 0u);
        EXPECT_EQ(decoded.values, std::vector<u8>(containers.set.begin() + first, containers.set.end()));
    }
    EXPECT_EQ(Decode(Codec::ROARING, Kind::BOOL, containers.Finish(), rows).values, containers.set);
}

TEST(RoaringValidity, LastContainerIsShort) {
    for (const u32 rows : {1u, 2u, 63u, 64u, 65u, 300u, 1500u, 2047u}) {
        Containers runs, bits, array;
        runs.Runs({{0, rows}}, rows);
        bits.Bitset(std::vector<u8>(rows, 1));
        array.Array({rows - 1}, true, rows);
        for (const Containers &containers : {runs, bits, array}) {
            const Decoded decoded = Decode(Codec::ROARING, Kind::VALIDITY, containers.Finish(), rows);
            EXPECT_EQ(decoded.error, 0u) << rows;
            EXPECT_EQ(decoded.values, containers.set) << rows;
        }
    }
}

TEST(RoaringValidity, DamageIsSaid) {
    const auto decode = [](const Containers &containers, u32 rows) {
        return Decode(Codec::ROARING, Kind::VALIDITY, containers.Finish(), rows).error;
    };
    Containers array;
    array.Array({5, 100}, true, 2048);
    EXPECT_EQ(decode(array, 2048), 0u);
    EXPECT_EQ(decode(array, 100), MALFORMED) << "a row that is not there";
    EXPECT_EQ(decode(array, 2049), MALFORMED) << "a container too few";
    Containers runs;
    runs.Runs({{5, 100}}, 2048);
    EXPECT_EQ(decode(runs, 98), MALFORMED) << "a run behind the rows";
    Containers backwards;
    backwards.Runs(EveryRun(5, 2048), 2048);
    std::swap(backwards.data.bytes[16], backwards.data.bytes[17]);
    EXPECT_EQ(decode(backwards, 2048), MALFORMED) << "a run that ends before it starts";
    Containers large = array;
    large.other_counts[0] = 250;
    EXPECT_EQ(decode(large, 2048), MALFORMED) << "more rows than an array has";
    large.other_counts[0] = 200;
    EXPECT_EQ(decode(large, 2048), MALFORMED) << "a container that reaches into the table";
    std::vector<u8> far = array.Finish();
    far[0] = static_cast<u8>(far.size() - 7);
    EXPECT_EQ(Decode(Codec::ROARING, Kind::VALIDITY, far, 2048).error, MALFORMED)
        << "a table behind the segment";
    EXPECT_EQ(Decode(Codec::ROARING, Kind::VALIDITY, {}, 2048).error, MALFORMED);
}

TEST(RoaringValidity, DamageIsHarmless) {
    const Containers containers = OneOfEach(1000);
    DecodeDamaged(Codec::ROARING, Kind::VALIDITY, containers.Finish(),
                  static_cast<u32>(containers.set.size()), 5);
}

} // namespace
} // namespace rawduck::gpu::testing
