#include "volume/tree/tree_page.hpp"

#include "common/crc32c.hpp"
#include "common/invariant.hpp"

#include <cstddef>
#include <cstring>

namespace rawduck {

namespace {

struct EntryHeader {
    uint16_t key_bytes, value_bytes;
};

EntryHeader ReadEntryHeader(const char *entry) {
    EntryHeader header;
    memcpy(&header, entry, sizeof header);
    return header;
}

uint32_t PageCrc(const char *bytes) {
    static constexpr char ZEROS[4] = {};
    constexpr size_t BEFORE = offsetof(TreePageHeader, crc), BEHIND = BEFORE + sizeof(uint32_t);
    const uint32_t crc = Crc32c(Crc32c(0, bytes, BEFORE), ZEROS, sizeof ZEROS);
    return Crc32c(crc, bytes + BEHIND, TREE_PAGE_BYTES - BEHIND);
}

} // namespace

void TreePage::Clear(uint16_t level) {
    memset(bytes_, 0, TREE_PAGE_BYTES);
    Header().magic = TREE_PAGE_MAGIC;
    Header().level = level;
    Header().heap_begin = TREE_PAGE_BYTES;
}

std::string_view TreePage::Key(uint16_t slot) const {
    RAWDUCK_INVARIANT(slot < Count(), "an entry that is read is there");
    const char *entry = bytes_ + Slots()[slot];
    return {entry + sizeof(EntryHeader), ReadEntryHeader(entry).key_bytes};
}

std::string_view TreePage::Value(uint16_t slot) const {
    RAWDUCK_INVARIANT(slot < Count(), "an entry that is read is there");
    const char *entry = bytes_ + Slots()[slot];
    const EntryHeader header = ReadEntryHeader(entry);
    return {entry + sizeof(EntryHeader) + header.key_bytes, header.value_bytes};
}

PagePointer TreePage::Child(uint16_t slot) const {
    RAWDUCK_INVARIANT(Level() > 0, "leaves have no children");
    PagePointer child;
    memcpy(&child, Value(slot).data(), sizeof child);
    return child;
}

void TreePage::SetChild(uint16_t slot, const PagePointer &child) {
    RAWDUCK_INVARIANT(Level() > 0, "leaves have no children");
    memcpy(const_cast<char *>(Value(slot).data()), &child, sizeof child);
}

uint16_t TreePage::LowerBound(std::string_view key) const {
    uint16_t low = 0, high = Count();
    while (low < high) {
        const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
        if (Key(middle) < key) {
            low = static_cast<uint16_t>(middle + 1);
        } else {
            high = middle;
        }
    }
    return low;
}

uint16_t TreePage::ChildFor(std::string_view key) const {
    const uint16_t slot = LowerBound(key);
    const bool here = slot == 0 || (slot < Count() && Key(slot) == key);
    return here ? slot : static_cast<uint16_t>(slot - 1);
}

uint32_t TreePage::EntryBytes(std::string_view key, std::string_view value) {
    return static_cast<uint32_t>(sizeof(uint16_t) + sizeof(EntryHeader) + key.size() + value.size());
}

uint32_t TreePage::UsedBytes() const {
    return 2u * Count() + TREE_PAGE_BYTES - Header().heap_begin - Header().unused;
}

bool TreePage::Insert(uint16_t slot, std::string_view key, std::string_view value) {
    RAWDUCK_INVARIANT(slot <= Count() && key.size() + value.size() <= TREE_ENTRY_BYTES_MAX,
                      "an entry has a place and fits into a page");
    const uint32_t bytes = EntryBytes(key, value);
    if (UsedBytes() + bytes > ROOM_BYTES) {
        return false;
    }
    if (SlotsEnd() + bytes > Header().heap_begin) {
        Compact();
    }
    const uint32_t entry_bytes = bytes - sizeof(uint16_t);
    Header().heap_begin = static_cast<uint16_t>(Header().heap_begin - entry_bytes);
    char *entry = bytes_ + Header().heap_begin;
    const EntryHeader header{static_cast<uint16_t>(key.size()), static_cast<uint16_t>(value.size())};
    memcpy(entry, &header, sizeof header);
    memcpy(entry + sizeof header, key.data(), key.size());
    memcpy(entry + sizeof header + key.size(), value.data(), value.size());
    memmove(Slots() + slot + 1, Slots() + slot, sizeof(uint16_t) * (Count() - slot));
    Slots()[slot] = Header().heap_begin;
    Header().count++;
    return true;
}

bool TreePage::Replace(uint16_t slot, std::string_view value) {
    const std::string_view old = Value(slot);
    if (old.size() == value.size()) {
        memmove(const_cast<char *>(old.data()), value.data(), value.size());
        return true;
    }
    const std::string key(Key(slot));
    Erase(slot);
    return Insert(slot, key, value);
}

void TreePage::Erase(uint16_t slot) {
    const uint32_t entry_bytes = EntryBytes(Key(slot), Value(slot)) - sizeof(uint16_t);
    if (Slots()[slot] == Header().heap_begin) {
        Header().heap_begin = static_cast<uint16_t>(Header().heap_begin + entry_bytes);
    } else {
        Header().unused = static_cast<uint16_t>(Header().unused + entry_bytes);
    }
    memmove(Slots() + slot, Slots() + slot + 1, sizeof(uint16_t) * (Count() - slot - 1));
    Header().count--;
    if (Count() == 0) {
        Header().heap_begin = TREE_PAGE_BYTES;
        Header().unused = 0;
    }
}

void TreePage::AppendFrom(const TreePage &other, uint16_t begin, uint16_t end) {
    for (uint16_t slot = begin; slot < end; slot++) {
        const bool inserted = Insert(Count(), other.Key(slot), other.Value(slot));
        RAWDUCK_INVARIANT(inserted, "entries that are moved to a page fit into it");
    }
}

// Entries that lie between others that were erased leave room that is in pieces.
void TreePage::Compact() {
    alignas(TreePageHeader) char copy[TREE_PAGE_BYTES];
    memcpy(copy, bytes_, TREE_PAGE_BYTES);
    const TreePage old(static_cast<const char *>(copy));
    Clear(old.Level());
    AppendFrom(old, 0, old.Count());
}

void TreePage::Seal(const Uuid &uuid, const PagePointer &place) {
    Header().uuid = uuid;
    Header().unit = place.unit;
    Header().generation = place.generation;
    Header().crc = PageCrc(bytes_);
}

std::string TreePage::Problem(const Uuid &uuid, const PagePointer &place, uint16_t level) const {
    const TreePageHeader &header = Header();
    if (header.magic != TREE_PAGE_MAGIC) {
        return "no page of a metadata tree";
    }
    if (header.crc != PageCrc(bytes_)) {
        return "wrong checksum";
    }
    if (header.uuid != uuid) {
        return "a page of another volume";
    }
    if (header.unit != place.unit) {
        return "a page that belongs to allocation unit " + std::to_string(header.unit);
    }
    if (header.generation != place.generation) {
        return "a page of generation " + std::to_string(header.generation) + " instead of " +
               std::to_string(place.generation) + ": the device has lost a write";
    }
    if (header.level != level) {
        return "a page of level " + std::to_string(header.level) + " instead of " + std::to_string(level);
    }
    return EntriesProblem();
}

// The checksum is right, so that nothing here is wrong unless whoever wrote the page was.
std::string TreePage::EntriesProblem() const {
    const TreePageHeader &header = Header();
    const bool has_room = header.count <= (TREE_PAGE_BYTES - sizeof(TreePageHeader)) / sizeof(uint16_t) &&
                          SlotsEnd() <= header.heap_begin && header.heap_begin <= TREE_PAGE_BYTES;
    if (!has_room || (header.level > 0 && header.count == 0) || header.level >= TREE_LEVELS_MAX) {
        return "its header makes no sense";
    }
    uint32_t bytes = 0;
    for (uint16_t slot = 0; slot < header.count; slot++) {
        const uint32_t begin = Slots()[slot];
        if (begin < header.heap_begin || begin + sizeof(EntryHeader) > TREE_PAGE_BYTES) {
            return "entry " + std::to_string(slot) + " lies outside";
        }
        const EntryHeader entry = ReadEntryHeader(bytes_ + begin);
        const uint32_t length = sizeof entry + entry.key_bytes + entry.value_bytes;
        if (begin + length > TREE_PAGE_BYTES || length > sizeof entry + TREE_ENTRY_BYTES_MAX ||
            (header.level > 0 && entry.value_bytes != sizeof(PagePointer))) {
            return "entry " + std::to_string(slot) + " has an impossible length";
        }
        bytes += length;
        if (header.level > 0 && Child(slot).unit == 0) {
            return "entry " + std::to_string(slot) + " leads nowhere";
        }
        if (slot > 0 && Key(static_cast<uint16_t>(slot - 1)) >= Key(slot)) {
            return "entry " + std::to_string(slot) + " is out of order";
        }
    }
    if (header.level > 0 && !Key(0).empty()) {
        return "its first key is not empty";
    }
    // Entries that overlap count twice.
    return bytes + header.unused + header.heap_begin == TREE_PAGE_BYTES ? "" : "its entries overlap";
}

} // namespace rawduck
