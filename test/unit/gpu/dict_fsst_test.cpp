//! DICT_FSST: all modes, NULL, parts of segments; what is malformed is said.
#include "gpu/segments.hpp"

#include <gtest/gtest.h>

namespace rawduck::gpu::testing {
namespace {

enum DictMode : u8 { DICTIONARY = 0, DICTIONARY_AND_FSST = 1, FSST_ONLY = 2 };

//! A symbol for each length, in the order in which FSST numbers them: 2, 3, … 8, 1.
const std::vector<std::string> SYMBOLS = {"th",      "ing",      "word", "eight", "letter",
                                          "compres", "12345678", "a",    "b"};

//! Codes for a string: the first symbol that fits, or an escape.
std::string Compress(const std::string &text) {
    std::string codes;
    for (size_t at = 0; at < text.size();) {
        size_t code = 0;
        while (code < SYMBOLS.size() && text.compare(at, SYMBOLS[code].size(), SYMBOLS[code]) != 0) {
            code++;
        }
        if (code == SYMBOLS.size()) {
            codes += std::string("\xff") + text[at++];
        } else {
            codes += static_cast<char>(code);
            at += SYMBOLS[code].size();
        }
    }
    return codes;
}

u32 BitsFor(size_t number) {
    u32 bits = 0;
    for (; number > 0; number >>= 1) {
        bits++;
    }
    return bits;
}

struct DictSegment {
    std::vector<std::string> entries = {""}; // the first one stands for NULL
    std::vector<u32> codes;                  // of each row; not with FSST_ONLY
    DictMode mode = DICTIONARY;
    std::vector<size_t> starts; // of dictionary, symbol table, lengths, codes: set by Finish

    std::vector<u8> Finish() {
        std::string dictionary;
        std::vector<u32> lengths;
        u32 longest = 0;
        for (const std::string &entry : entries) {
            const std::string stored = mode == DICTIONARY ? entry : Compress(entry);
            dictionary += stored;
            lengths.push_back(static_cast<u32>(stored.size()));
            longest = std::max(longest, lengths.back());
        }
        Writer writer;
        writer.Put(static_cast<u32>(dictionary.size()));
        writer.Put(static_cast<u32>(entries.size()));
        writer.Put(mode);
        writer.Put(static_cast<u8>(BitsFor(longest)));
        const u32 code_width = mode == FSST_ONLY ? 0 : BitsFor(entries.size() - 1);
        writer.Put(static_cast<u8>(code_width));
        writer.Put<u8>(0);
        writer.Put(mode == DICTIONARY ? 0u : 17 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 1 + 1);
        starts = {writer.bytes.size()};
        writer.bytes.insert(writer.bytes.end(), dictionary.begin(), dictionary.end());
        writer.Align(8);
        starts.push_back(writer.bytes.size());
        if (mode != DICTIONARY) {
            writer.Put<u32>(0);
            writer.Put<u32>(20190218);
            writer.Put<u8>(0);
            for (const u8 count : {2, 1, 1, 1, 1, 1, 1, 1}) {
                writer.Put(count);
            }
            for (const std::string &symbol : SYMBOLS) {
                writer.bytes.insert(writer.bytes.end(), symbol.begin(), symbol.end());
            }
        }
        writer.Align(8);
        starts.push_back(writer.bytes.size());
        writer.Pack(lengths, BitsFor(longest));
        writer.Align(8);
        starts.push_back(writer.bytes.size());
        writer.Pack(codes, code_width);
        return writer.bytes;
    }

    u32 Rows() const { return static_cast<u32>(mode == FSST_ONLY ? entries.size() - 1 : codes.size()); }

    u32 CodeOf(u32 row) const { return mode == FSST_ONLY ? row + 1 : codes[row]; }
};

std::string SomeString(u32 number) {
    const char *const words[] = {"thing",      "word ",    "eight", "letter",
                                 "compressed", "12345678", "aab",   "\xff\x00z"};
    std::string text;
    for (u32 i = 0; i < number % 6; i++) {
        text += words[(number + i * 3) % 8];
    }
    return text + std::to_string(number);
}

DictSegment SomeSegment(DictMode mode, u32 rows, u32 entries) {
    DictSegment segment;
    segment.mode = mode;
    std::mt19937_64 random(rows);
    for (u32 i = 0; i < entries; i++) {
        segment.entries.push_back(i == 3 ? "" : SomeString(i));
    }
    for (u32 i = 0; i < rows && mode != FSST_ONLY; i++) {
        segment.codes.push_back(static_cast<u32>(random() % (entries + 1)));
    }
    return segment;
}

void ExpectDecoded(DictSegment segment) {
    const std::vector<u8> bytes = segment.Finish();
    const u32 rows = segment.Rows();
    for (const u32 first : {0u, 1u % rows, rows / 2, rows - 1}) {
        const Decoded decoded = Decode(Codec::DICT_FSST, Kind::STRING, bytes, rows, first, rows - first);
        ASSERT_EQ(decoded.error, 0u);
        for (u32 row = first; row < rows; row++) {
            const u32 code = segment.CodeOf(row);
            ASSERT_EQ(decoded.strings[row - first], segment.entries[code]) << segment.mode << " " << row;
            ASSERT_EQ(decoded.valid[row - first], code != 0);
        }
    }
}

TEST(DictFsst, EveryMode) {
    for (const u32 rows : {1u, 2u, 31u, 32u, 33u, 2047u, 2048u, 2049u, 5000u}) {
        for (const u32 entries : {1u, 2u, 7u, 8u, 9u, 100u, rows}) {
            ExpectDecoded(SomeSegment(DICTIONARY, rows, std::min(entries, rows)));
            ExpectDecoded(SomeSegment(DICTIONARY_AND_FSST, rows, std::min(entries, rows)));
        }
        ExpectDecoded(SomeSegment(FSST_ONLY, rows, rows));
    }
}

TEST(DictFsst, OnlyNull) {
    DictSegment segment;
    segment.codes.assign(100, 0);
    ExpectDecoded(segment);
}

u32 ErrorOf(const std::vector<u8> &bytes, u32 rows) {
    return Decode(Codec::DICT_FSST, Kind::STRING, bytes, rows).error;
}

TEST(DictFsst, DamageIsSaid) {
    DictSegment segment = SomeSegment(DICTIONARY_AND_FSST, 100, 20);
    const std::vector<u8> bytes = segment.Finish();
    const auto set = [&](size_t offset, u8 value) {
        std::vector<u8> damaged = bytes;
        damaged[offset] = value;
        return ErrorOf(damaged, 100);
    };
    EXPECT_EQ(ErrorOf(bytes, 100), 0u);
    EXPECT_EQ(set(2, 1), MALFORMED) << "bytes of the dictionary";
    EXPECT_EQ(set(0, static_cast<u8>(bytes[0] - 1)), MALFORMED) << "entries behind the dictionary";
    EXPECT_EQ(set(4, 0), MALFORMED) << "no entry";
    EXPECT_EQ(set(4, 102), MALFORMED) << "more entries than rows";
    EXPECT_EQ(set(4, 2), MALFORMED) << "codes of entries that are not there";
    EXPECT_EQ(set(8, 3), MALFORMED) << "mode";
    EXPECT_EQ(set(8, 2), MALFORMED) << "an entry for each row";
    EXPECT_EQ(set(9, 33), MALFORMED) << "width of lengths";
    EXPECT_EQ(set(10, 33), MALFORMED) << "width of codes";
    EXPECT_EQ(set(10, 6), MALFORMED) << "codes behind the segment";
    EXPECT_EQ(set(12, 16), MALFORMED) << "a symbol table without symbols";
    EXPECT_EQ(set(14, 1), MALFORMED) << "a symbol table behind the segment";
    const size_t symbols = segment.starts[1];
    EXPECT_EQ(set(symbols + 4, 0), MALFORMED) << "version of FSST";
    EXPECT_EQ(set(symbols + 8, 1), MALFORMED) << "strings that end with 0";
    EXPECT_EQ(set(symbols + 9, 255), MALFORMED) << "more symbols than codes";
    EXPECT_EQ(set(symbols + 16, 2), MALFORMED) << "symbols behind their table";
    EXPECT_EQ(ErrorOf(std::vector<u8>(bytes.begin(), bytes.end() - 1), 100), MALFORMED);
    EXPECT_EQ(ErrorOf({}, 100), MALFORMED);
}

TEST(DictFsst, CodesOfNoSymbolAreSaid) {
    DictSegment segment;
    segment.mode = DICTIONARY_AND_FSST;
    segment.entries.push_back("aba");
    segment.codes = {1, 0, 1};
    std::vector<u8> bytes = segment.Finish();
    EXPECT_EQ(ErrorOf(bytes, 3), 0u);
    bytes[18] = 255;
    EXPECT_EQ(ErrorOf(bytes, 3), MALFORMED) << "an escape without a byte";
    bytes[18] = 9;
    EXPECT_EQ(ErrorOf(bytes, 3), MALFORMED) << "a code without a symbol";
}

TEST(DictFsst, DamageIsHarmless) {
    for (const DictMode mode : {DICTIONARY, DICTIONARY_AND_FSST, FSST_ONLY}) {
        DictSegment segment = SomeSegment(mode, 60, 60);
        DecodeDamaged(Codec::DICT_FSST, Kind::STRING, segment.Finish(), segment.Rows());
    }
}

} // namespace
} // namespace rawduck::gpu::testing
