//! The state of files according to records, simple and all in memory: where the trees cannot take the records because
//! pages of them are damaged; and for tests of what the trees hold.
#pragma once

#include "volume/catalog/catalog_entry.hpp"

#include <map>
#include <string>
#include <vector>

namespace rawduck {

//! Not thread-safe.
class Catalog {
  public:
    Catalog(uint32_t lba_size, AllocationUnit data_start, AllocationUnit data_end);

    //! False, with `problem`, when the item contradicts the state; the state is then unchanged, as it is when
    //! there is no memory for it (std::bad_alloc).
    bool Apply(const Item &item, std::string &problem);

    //! Of a file that is there: nothing changes its contents any more.
    void MarkSnapshot(uint64_t file_id) { entries_.at(file_id).snapshot = true; }

    //! Sizes match extents and tails, no two names are equal, no two extents overlap unless something was cloned. Empty
    //! when all is well.
    std::vector<std::string> FindProblems() const;

    const std::map<uint64_t, CatalogEntry> &Entries() const { return entries_; }

  private:
    bool ApplyCreate(const Item &item, std::string &problem);
    bool ApplyExtents(CatalogEntry &entry, const Item &item, std::string &problem);
    bool ApplyRemap(CatalogEntry &entry, const Item &item, std::string &problem);
    bool ApplySize(CatalogEntry &entry, const Item &item, std::string &problem);
    bool ApplyMove(CatalogEntry &entry, const Item &item, std::string &problem);
    bool ApplyClone(const Item &item, std::string &problem);
    bool IsInDataArea(const Extent &extent) const;

    std::map<uint64_t, CatalogEntry> entries_;
    bool shares_ = false; //!< something was cloned
    uint32_t lba_size_;
    uint64_t data_start_, data_end_;
};

} // namespace rawduck
