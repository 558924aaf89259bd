//! What a writer sends to a reader, whole, cut, and changed.

#include "volume/readers/reader_image.hpp"

#include "common/error.hpp"
#include "support/volume_fixture.hpp"

namespace rawduck {

namespace {

ReaderImage ImageOfTwoFiles() {
    ReaderImage image;
    image.superblock = MakeTreeSuperblock(64 * MIB, 512, MakeUuid(), "label", 1);
    SealSuperblock(image.superblock);
    const uint64_t data = image.superblock.data_start;
    CatalogEntry database, log;
    database.name = "x.duckdb@latest";
    database.kind = FileKind::DATABASE;
    database.size = 3 * ALLOCATION_UNIT_BYTES;
    database.created_us = 7;
    database.modified_us = 8;
    database.extents = {{0, data + 5, 2}, {2, data, 1}};
    database.holes = {{100, 200}, {4096, 1}};
    log.name = "x.duckdb@latest.wal";
    log.kind = FileKind::WAL;
    log.size = 3;
    log.tail = std::string("a\0b", 3);
    log.extents = {{0, data + 1, 1}};
    image.files = {database, log};
    return image;
}

ErrorCode FailureOfDecoding(const std::string &bytes) {
    return FailureOf([&] { DecodeReaderImage(bytes, "/t"); });
}

} // namespace

TEST(ReaderImageTest, IsReadAsItWasWritten) {
    const ReaderImage image = ImageOfTwoFiles();
    const ReaderImage read = DecodeReaderImage(EncodeReaderImage(image), "/t");
    EXPECT_EQ(memcmp(&read.superblock, &image.superblock, sizeof(read.superblock)), 0);
    ASSERT_EQ(read.files.size(), 2u);
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQ(read.files[i].name, image.files[i].name);
        EXPECT_EQ(read.files[i].kind, image.files[i].kind);
        EXPECT_EQ(read.files[i].size, image.files[i].size);
        EXPECT_EQ(read.files[i].created_us, image.files[i].created_us);
        EXPECT_EQ(read.files[i].modified_us, image.files[i].modified_us);
        EXPECT_EQ(read.files[i].tail, image.files[i].tail);
        EXPECT_TRUE(read.files[i].snapshot);
        ASSERT_EQ(read.files[i].extents.size(), image.files[i].extents.size());
        EXPECT_EQ(read.files[i].extents.back().start, image.files[i].extents.back().start);
        ASSERT_EQ(read.files[i].holes.size(), image.files[i].holes.size());
    }
}

TEST(ReaderImageTest, WhatIsCutOrLongerIsRefused) {
    const std::string bytes = EncodeReaderImage(ImageOfTwoFiles());
    for (size_t length = 0; length < bytes.size(); length++) {
        EXPECT_EQ(FailureOfDecoding(bytes.substr(0, length)), ErrorCode::CORRUPT) << length;
    }
    EXPECT_EQ(FailureOfDecoding(bytes + "x"), ErrorCode::CORRUPT);
}

TEST(ReaderImageTest, ExtentsOutsideTheVolumeAreRefused) {
    const std::vector<std::function<void(CatalogEntry &, const TreeSuperblock &)>> changes = {
        [](CatalogEntry &entry, const TreeSuperblock &sb) { entry.extents[0].start = sb.data_end; },
        [](CatalogEntry &entry, const TreeSuperblock &sb) { entry.extents[0].start = sb.data_start - 1; },
        [](CatalogEntry &entry, const TreeSuperblock &) { entry.extents[0].units = UINT64_MAX; },
        [](CatalogEntry &entry, const TreeSuperblock &) { entry.extents[0].units = 0; },
        [](CatalogEntry &entry, const TreeSuperblock &) { entry.extents[1].file_unit = 3; },
        [](CatalogEntry &entry, const TreeSuperblock &) { entry.size = 4 * ALLOCATION_UNIT_BYTES; },
        [](CatalogEntry &entry, const TreeSuperblock &) { entry.tail = "x"; },
        [](CatalogEntry &entry, const TreeSuperblock &) { entry.holes[1].offset = 50; },
        [](CatalogEntry &entry, const TreeSuperblock &) { entry.holes[1].length = UINT64_MAX; },
        [](CatalogEntry &entry, const TreeSuperblock &) { entry.kind = FileKind::TEMP; },
    };
    for (size_t i = 0; i < changes.size(); i++) {
        ReaderImage image = ImageOfTwoFiles();
        changes[i](image.files[0], image.superblock);
        EXPECT_EQ(FailureOfDecoding(EncodeReaderImage(image)), ErrorCode::CORRUPT) << i;
    }
}

TEST(ReaderImageTest, AnySingleByteMayBeWrong) {
    const std::string bytes = EncodeReaderImage(ImageOfTwoFiles());
    for (size_t at = 0; at < bytes.size(); at++) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(changed[at] ^ 0xFF);
        try {
            DecodeReaderImage(changed, "/t");
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::CORRUPT) << at;
        }
    }
}

} // namespace rawduck
