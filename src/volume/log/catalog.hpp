//! The durable state of a volume's files according to the log: what a mount would find now. Every record is
//! applied to it, by the same code when it is written and when it is replayed, so a snapshot is this state,
//! encoded.
#pragma once

#include "volume/format/file_kind.hpp"
#include "volume/format/record.hpp"

#include <map>
#include <string>
#include <vector>

namespace rawduck {

struct CatalogEntry {
    std::string name;
    FileKind kind = FileKind::OTHER;
    uint64_t size = 0; //!< bytes
    int64_t created_us = 0, modified_us = 0;
    std::string tail; //!< the bytes of the partial last LBA; empty when the size is a multiple of the LBA
    std::vector<Extent> extents; //!< in file order, covering the size exactly, rounded up to units
    std::vector<Hole> holes;     //!< sorted, disjoint, below the size
    uint64_t Units() const;      //!< covered by the extents
};

//! What a file takes in a snapshot, in bytes.
uint64_t EntryBytes(uint64_t name_bytes, uint64_t tail_bytes, uint64_t extents, uint64_t holes);

//! The item that creates a file now.
Item CreateItem(uint64_t file_id, FileKind kind, const std::string &name);

//! Not thread-safe: the log's writer owns it.
class Catalog {
  public:
    Catalog(uint32_t lba_size, AllocationUnit data_start, AllocationUnit data_end);

    //! False, with `problem`, when the item contradicts the state; the state is then unchanged, as it is when
    //! there is no memory for it (std::bad_alloc).
    bool Apply(const Item &item, std::string &problem);

    //! The items that build this state, encoded.
    std::string Snapshot() const;
    //! Length of Snapshot() in bytes, kept up to date by Apply.
    uint64_t SnapshotBytes() const { return snapshot_bytes_; }

    //! Sizes match extents and tails, no two names are equal, no two extents overlap. Empty when all is well.
    std::vector<std::string> FindProblems() const;

    const std::map<uint64_t, CatalogEntry> &Entries() const { return entries_; }

  private:
    bool ApplyCreate(const Item &item, std::string &problem);
    bool ApplyExtents(CatalogEntry &entry, const Item &item, std::string &problem);
    bool ApplyRemap(CatalogEntry &entry, const Item &item, std::string &problem);
    bool ApplySize(CatalogEntry &entry, const Item &item, std::string &problem);
    bool ApplyMove(CatalogEntry &entry, const Item &item, std::string &problem);
    bool IsInDataArea(const Extent &extent) const;
    static uint64_t EncodedBytes(const CatalogEntry &entry);

    std::map<uint64_t, CatalogEntry> entries_;
    uint64_t snapshot_bytes_ = 0;
    uint32_t lba_size_;
    uint64_t data_start_, data_end_;
};

} // namespace rawduck
