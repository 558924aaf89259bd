#include "volume/log/entry_size.hpp"

#include "common/invariant.hpp"
#include "volume/catalog/catalog_tree.hpp"
#include "volume/tree/number_key.hpp"

#include <algorithm>

namespace rawduck {

namespace {

constexpr uint64_t FILL = 2;              //!< pages are at least half full
constexpr uint64_t SLOT_BYTES = 6;        //!< of an entry in a page, beside key and value
constexpr uint64_t ENTRY_BYTES = 96;      //!< of a file's entry, beside its lists and its name
constexpr uint64_t LEAVES_PER_PAGE = 128; //!< that a page above the leaves of a file's own tree has at least

//! Of a list that is too long for the entry.
uint64_t TreeBytes(uint64_t entries, uint64_t value_bytes) {
    const uint64_t bytes = entries * (SLOT_BYTES + NumberKey::BYTES + value_bytes);
    const uint64_t leaves = DivideUp(FILL * bytes, TreePage::ROOM_BYTES);
    return (leaves + (leaves > 1 ? 1 + leaves / LEAVES_PER_PAGE * 2 : 0)) * TREE_PAGE_BYTES;
}

} // namespace

EntrySize &EntrySize::operator+=(const EntrySize &other) {
    name_bytes += other.name_bytes;
    tail_bytes += other.tail_bytes;
    extents += other.extents;
    holes += other.holes;
    references += other.references;
    return *this;
}

EntrySize &EntrySize::operator-=(const EntrySize &other) {
    RAWDUCK_INVARIANT(other.name_bytes <= name_bytes && other.tail_bytes <= tail_bytes &&
                          other.extents <= extents && other.holes <= holes && other.references <= references,
                      "a change gives back what it took");
    name_bytes -= other.name_bytes;
    tail_bytes -= other.tail_bytes;
    extents -= other.extents;
    holes -= other.holes;
    references -= other.references;
    return *this;
}

EntrySize Max(const EntrySize &a, const EntrySize &b) {
    return {std::max(a.name_bytes, b.name_bytes), std::max(a.tail_bytes, b.tail_bytes),
            std::max(a.extents, b.extents), std::max(a.holes, b.holes), std::max(a.references, b.references)};
}

uint64_t MetadataBytes(const EntrySize &size) {
    const uint64_t id = NumberKey::BYTES;
    const uint64_t name = SLOT_BYTES + size.name_bytes + sizeof(uint64_t);
    const uint64_t entry = SLOT_BYTES + id + ENTRY_BYTES + size.name_bytes +
                           std::min<uint64_t>(size.extents, ENTRY_EXTENTS_MAX) * 2 * sizeof(uint64_t) +
                           std::min<uint64_t>(size.holes, ENTRY_HOLES_MAX) * sizeof(Hole);
    const uint64_t tail =
        DivideUp(size.tail_bytes, TAIL_PIECE_BYTES) * (SLOT_BYTES + id + 1) + size.tail_bytes;
    const uint64_t references = size.references * (SLOT_BYTES + id + 2 * sizeof(uint64_t));
    uint64_t bytes = FILL * (name + entry + tail + references);
    bytes += size.extents > ENTRY_EXTENTS_MAX ? TreeBytes(size.extents, 2 * sizeof(uint64_t)) : 0;
    bytes += size.holes > ENTRY_HOLES_MAX ? TreeBytes(size.holes, sizeof(uint64_t)) : 0;
    return bytes;
}

} // namespace rawduck
