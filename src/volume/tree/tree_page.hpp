//! A page of a metadata tree, as it lies on the device: entries of a key and a value, ordered by key.
//!
//! A leaf (level 0) holds what the tree stores. A page of a higher level holds one entry for each page below it:
//! the lowest key that belongs there, and where it lies. Its first key is empty: whatever comes before the second
//! belongs to the first page below.
//!
//! The header is followed by the slots, 2 bytes each, in the order of the keys: where the slot's entry begins.
//! Entries fill the page from its end downwards, in any order.
#pragma once

#include "volume/format/superblock.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace rawduck {

constexpr uint32_t TREE_PAGE_BYTES = 16 * 1024;
constexpr uint64_t TREE_PAGE_UNITS = TREE_PAGE_BYTES / ALLOCATION_UNIT_BYTES;
//! Of an entry: its key and its value together.
constexpr uint32_t TREE_ENTRY_BYTES_MAX = 4000;
constexpr uint16_t TREE_LEVELS_MAX = 16;

//! Where a page lies, and which of those that ever lay there is meant.
struct PagePointer {
    uint64_t unit = 0;       //!< allocation unit; 0 when there is no page
    uint64_t generation = 0; //!< see TreePageHeader
    bool operator==(const PagePointer &other) const {
        return unit == other.unit && generation == other.generation;
    }
};
static_assert(sizeof(PagePointer) == 16, "layout is part of the format");

struct TreePageHeader {
    uint32_t magic; //!< TREE_PAGE_MAGIC
    uint32_t crc;   //!< CRC32C of the page with this field zero
    Uuid uuid;      //!< of the volume
    uint64_t unit;  //!< where the page lies
    //! Of the checkpoint that wrote the page. No two writes of a page to one place have the same, so a write
    //! that was lost, or went elsewhere, is noticed by whoever follows a pointer.
    uint64_t generation;
    uint16_t level;
    uint16_t count;       //!< of entries
    uint16_t heap_begin;  //!< where the lowest entry begins
    uint16_t unused;      //!< bytes among the entries that belong to none
    uint8_t reserved[16]; //!< zero
};
static_assert(sizeof(TreePageHeader) == 64, "layout is part of the format");

constexpr uint32_t TREE_PAGE_MAGIC = 0x50544452; // "RDTP"

//! Works on a page in memory, which starts at a multiple of 4096. Not thread-safe.
class TreePage {
  public:
    explicit TreePage(char *bytes) : bytes_(bytes) {}
    //! The page may only be read.
    explicit TreePage(const char *bytes) : bytes_(const_cast<char *>(bytes)) {}

    //! Makes it an empty page.
    void Clear(uint16_t level);

    uint16_t Count() const { return Header().count; }
    uint16_t LastSlot() const { return static_cast<uint16_t>(Header().count - 1); }
    uint16_t Level() const { return Header().level; }
    std::string_view Key(uint16_t slot) const;
    std::string_view Value(uint16_t slot) const;
    //! Of a page above the leaves.
    PagePointer Child(uint16_t slot) const;
    void SetChild(uint16_t slot, const PagePointer &child);

    //! The first slot whose key is not less.
    uint16_t LowerBound(std::string_view key) const;
    //! Of a page above the leaves: the slot of the page below to which the key belongs.
    uint16_t ChildFor(std::string_view key) const;

    //! False, with nothing changed, when there is no room.
    bool Insert(uint16_t slot, std::string_view key, std::string_view value);
    //! Gives the entry in the slot another value. False, with the entry gone, when there is no room for it.
    bool Replace(uint16_t slot, std::string_view value);
    void Erase(uint16_t slot);
    //! Adds the entries [begin, end) of another page, behind those that are here. There must be room.
    void AppendFrom(const TreePage &other, uint16_t begin, uint16_t end);

    //! Of entries and their slots.
    uint32_t UsedBytes() const;
    static constexpr uint32_t ROOM_BYTES = TREE_PAGE_BYTES - sizeof(TreePageHeader);
    static uint32_t EntryBytes(std::string_view key, std::string_view value);

    //! Completes the header, for writing.
    void Seal(const Uuid &uuid, const PagePointer &place);
    //! What is wrong with a page that was read; empty when it is what the pointer means and every other
    //! function can be used on it.
    std::string Problem(const Uuid &uuid, const PagePointer &place, uint16_t level) const;

  private:
    TreePageHeader &Header() { return *reinterpret_cast<TreePageHeader *>(bytes_); }
    const TreePageHeader &Header() const { return *reinterpret_cast<const TreePageHeader *>(bytes_); }
    uint16_t *Slots() { return reinterpret_cast<uint16_t *>(bytes_ + sizeof(TreePageHeader)); }
    const uint16_t *Slots() const {
        return reinterpret_cast<const uint16_t *>(bytes_ + sizeof(TreePageHeader));
    }
    uint32_t SlotsEnd() const { return sizeof(TreePageHeader) + 2u * Count(); }
    void Compact();
    std::string EntriesProblem() const;

    char *bytes_;
};

} // namespace rawduck
