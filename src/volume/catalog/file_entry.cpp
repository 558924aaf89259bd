#include "volume/catalog/file_entry.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <cstring>

namespace rawduck {

namespace {

//! Followed by the extents, the holes and the name.
struct Header {
    uint8_t kind, extents, holes, flags;
    uint32_t tail_bytes;
    uint64_t size, units;
    int64_t created_us, modified_us;
    TreeRoot extents_root, holes_root;
    uint32_t name_bytes, reserved_2;
};
constexpr uint8_t SNAPSHOT_FLAG = 1;
static_assert(sizeof(Header) == 96, "layout is part of the format");

//! An extent, whose place in the file is where the one before ends.
struct Place {
    uint64_t start, units;
};
static_assert(sizeof(Place) == 16, "layout is part of the format");
static_assert(sizeof(uint64_t) + sizeof(Header) + ENTRY_EXTENTS_MAX * sizeof(Place) +
                      ENTRY_HOLES_MAX * sizeof(Hole) + ENTRY_NAME_BYTES_MAX <=
                  TREE_ENTRY_BYTES_MAX,
              "every entry fits into a page");

template <class T> void AppendRaw(std::string &out, const T &value) {
    out.append(reinterpret_cast<const char *>(&value), sizeof value);
}

template <class T> bool Take(std::string_view &bytes, T &value) {
    if (bytes.size() < sizeof value) {
        return false;
    }
    memcpy(static_cast<void *>(&value), bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
    return true;
}

bool TryDecode(std::string_view bytes, FileEntry &entry) {
    Header header{};
    if (!Take(bytes, header) || header.extents > ENTRY_EXTENTS_MAX || header.holes > ENTRY_HOLES_MAX ||
        (header.flags & ~SNAPSHOT_FLAG) != 0) {
        return false;
    }
    entry.snapshot = (header.flags & SNAPSHOT_FLAG) != 0;
    entry.kind = static_cast<FileKind>(header.kind);
    entry.tail_bytes = header.tail_bytes;
    entry.size = header.size;
    entry.units = header.units;
    entry.created_us = header.created_us;
    entry.modified_us = header.modified_us;
    entry.extents_root = header.extents_root;
    entry.holes_root = header.holes_root;
    uint64_t end = 0;
    for (uint8_t i = 0; i < header.extents; i++) {
        Place place{};
        if (!Take(bytes, place)) {
            return false;
        }
        entry.extents.push_back(Extent{end, place.start, place.units});
        end += place.units;
    }
    for (uint8_t i = 0; i < header.holes; i++) {
        Hole hole;
        if (!Take(bytes, hole)) {
            return false;
        }
        entry.holes.push_back(hole);
    }
    entry.name = bytes;
    const bool lies_once = (entry.extents.empty() || header.extents_root.levels == 0) &&
                           (entry.holes.empty() || header.holes_root.levels == 0);
    if (!IsStored(entry.kind) || !lies_once || !IsSane(header.extents_root) || !IsSane(header.holes_root)) {
        return false;
    }
    return bytes.size() == header.name_bytes && !bytes.empty();
}

} // namespace

CatalogEntry FileEntry::WithoutContents() const {
    CatalogEntry file;
    file.name = name;
    file.kind = kind;
    file.snapshot = snapshot;
    file.size = size;
    file.created_us = created_us;
    file.modified_us = modified_us;
    return file;
}

std::string FileEntry::Encode() const {
    RAWDUCK_INVARIANT(extents.size() <= ENTRY_EXTENTS_MAX && holes.size() <= ENTRY_HOLES_MAX,
                      "long lists lie in trees");
    RAWDUCK_INVARIANT((extents.empty() || extents_root.levels == 0) &&
                          (holes.empty() || holes_root.levels == 0),
                      "a list lies in the entry or in a tree");
    Header header{};
    header.kind = static_cast<uint8_t>(kind);
    header.extents = static_cast<uint8_t>(extents.size());
    header.holes = static_cast<uint8_t>(holes.size());
    header.flags = snapshot ? SNAPSHOT_FLAG : 0;
    header.tail_bytes = tail_bytes;
    header.size = size;
    header.units = units;
    header.created_us = created_us;
    header.modified_us = modified_us;
    header.extents_root = extents_root;
    header.holes_root = holes_root;
    header.name_bytes = static_cast<uint32_t>(name.size());
    std::string out;
    AppendRaw(out, header);
    for (const Extent &extent : extents) {
        AppendRaw(out, Place{extent.start, extent.units});
    }
    for (const Hole &hole : holes) {
        AppendRaw(out, hole);
    }
    return out + name;
}

FileEntry FileEntry::Decode(uint64_t file_id, std::string_view bytes) {
    FileEntry entry;
    if (!TryDecode(bytes, entry)) {
        throw Error(ErrorCode::CORRUPT, "the metadata of file " + std::to_string(file_id) +
                                            " makes no sense; `rawduck check` tells more");
    }
    return entry;
}

} // namespace rawduck
