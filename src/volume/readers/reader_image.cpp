#include "volume/readers/reader_image.hpp"

#include "common/error.hpp"

#include <cstring>

namespace rawduck {

namespace {

void PutNumber(std::string &bytes, uint64_t number) {
    for (int i = 0; i < 8; i++) {
        bytes.push_back(static_cast<char>(number >> (8 * i)));
    }
}

void PutText(std::string &bytes, std::string_view text) {
    PutNumber(bytes, text.size());
    bytes.append(text);
}

class Cursor {
  public:
    Cursor(std::string_view bytes, const std::string &target_name)
        : bytes_(bytes), target_name_(target_name) {}

    uint64_t Number() {
        const std::string_view bytes = Bytes(8);
        uint64_t number = 0;
        for (int i = 7; i >= 0; i--) {
            number = number << 8 | static_cast<uint8_t>(bytes[i]);
        }
        return number;
    }
    std::string_view Bytes(uint64_t count) {
        Require(count <= bytes_.size());
        const std::string_view found = bytes_.substr(0, count);
        bytes_.remove_prefix(count);
        return found;
    }
    std::string Text() { return std::string(Bytes(Number())); }
    //! Of elements that have at least `least` bytes each.
    uint64_t Count(uint64_t least) {
        const uint64_t count = Number();
        Require(count <= bytes_.size() / least);
        return count;
    }
    void Require(bool whole) const {
        if (!whole) {
            throw Error(ErrorCode::CORRUPT, target_name_ + ": what the process that has the volume open for "
                                                           "writing answered cannot be understood; is it of "
                                                           "the same version of rawduck?");
        }
    }
    bool AtEnd() const { return bytes_.empty(); }

  private:
    std::string_view bytes_;
    const std::string &target_name_;
};

void PutEntry(std::string &bytes, const CatalogEntry &entry) {
    PutText(bytes, entry.name);
    PutNumber(bytes, static_cast<uint64_t>(entry.kind));
    PutNumber(bytes, entry.size);
    PutNumber(bytes, static_cast<uint64_t>(entry.created_us));
    PutNumber(bytes, static_cast<uint64_t>(entry.modified_us));
    PutText(bytes, entry.tail);
    PutNumber(bytes, entry.extents.size());
    for (const Extent &extent : entry.extents) {
        PutNumber(bytes, extent.file_unit);
        PutNumber(bytes, extent.start);
        PutNumber(bytes, extent.units);
    }
    PutNumber(bytes, entry.holes.size());
    for (const Hole &hole : entry.holes) {
        PutNumber(bytes, hole.offset);
        PutNumber(bytes, hole.length);
    }
}

CatalogEntry TakeEntry(Cursor &cursor, const TreeSuperblock &superblock) {
    CatalogEntry entry;
    entry.snapshot = true;
    entry.name = cursor.Text();
    const uint64_t kind = cursor.Number();
    cursor.Require(kind == static_cast<uint64_t>(FileKind::DATABASE) ||
                   kind == static_cast<uint64_t>(FileKind::WAL) ||
                   kind == static_cast<uint64_t>(FileKind::OTHER));
    entry.kind = static_cast<FileKind>(kind);
    entry.size = cursor.Number();
    entry.created_us = static_cast<int64_t>(cursor.Number());
    entry.modified_us = static_cast<int64_t>(cursor.Number());
    entry.tail = cursor.Text();
    uint64_t units = 0;
    for (uint64_t left = cursor.Count(24); left > 0; left--) {
        Extent extent;
        extent.file_unit = cursor.Number();
        extent.start = cursor.Number();
        extent.units = cursor.Number();
        cursor.Require(extent.file_unit == units && extent.units > 0 &&
                       extent.start >= superblock.data_start && extent.start < superblock.data_end &&
                       extent.units <= superblock.data_end - extent.start);
        units += extent.units;
        entry.extents.push_back(extent);
    }
    cursor.Require(entry.size <= units * ALLOCATION_UNIT_BYTES &&
                   entry.tail.size() == entry.size % superblock.lba_size);
    uint64_t end = 0;
    for (uint64_t left = cursor.Count(16); left > 0; left--) {
        Hole hole;
        hole.offset = cursor.Number();
        hole.length = cursor.Number();
        cursor.Require(hole.offset >= end && hole.offset <= entry.size &&
                       hole.length <= entry.size - hole.offset);
        end = hole.offset + hole.length;
        entry.holes.push_back(hole);
    }
    return entry;
}

} // namespace

std::string EncodeReaderImage(const ReaderImage &image) {
    std::string bytes(reinterpret_cast<const char *>(&image.superblock), sizeof(image.superblock));
    PutNumber(bytes, image.files.size());
    for (const CatalogEntry &entry : image.files) {
        PutEntry(bytes, entry);
    }
    return bytes;
}

ReaderImage DecodeReaderImage(std::string_view bytes, const std::string &target_name) {
    Cursor cursor(bytes, target_name);
    ReaderImage image;
    memcpy(&image.superblock, cursor.Bytes(sizeof(image.superblock)).data(), sizeof(image.superblock));
    bool unsupported = false;
    const uint64_t capacity = image.superblock.capacity_units * ALLOCATION_UNIT_BYTES;
    cursor.Require(ExamineSuperblock(image.superblock, capacity, unsupported).empty());
    for (uint64_t left = cursor.Count(64); left > 0; left--) {
        image.files.push_back(TakeEntry(cursor, image.superblock));
    }
    cursor.Require(cursor.AtEnd());
    return image;
}

} // namespace rawduck
