//! The metadata trees of a volume of format 2, with the pages that they lie in.
#pragma once

#include "volume/catalog/catalog_tree.hpp"
#include "volume/catalog/free_space.hpp"
#include "volume/journal/tree_superblock.hpp"

#include <mutex>

namespace rawduck {

//! Zones for pages, between the free space of the volume and the pages: these are needed under the mutex of the
//! store, under which free space cannot be looked for. Thread-safe.
class ZoneStock {
  public:
    //! A zone for pages; 0 when there is none: then the stock has to be filled.
    uint64_t Take();
    //! A zone that was taken.
    void Give(uint64_t start) noexcept;

    //! Adds a zone from `take`, which returns 0 when there is none. Returns whether it did. Throws std::bad_alloc
    //! before it asks for one.
    bool Add(const std::function<uint64_t()> &take);
    //! Removes all.
    void Clear();

  private:
    std::mutex mutex_; //!< guards what follows; no other lock is taken under it
    std::vector<uint64_t> zones_;
};

class MetadataTrees {
  public:
    //! The trees of a checkpoint. Reads the map of its pages. `generation`: of the first checkpoint that will be
    //! written.
    MetadataTrees(BlockIo &io, const TreeSuperblock &superblock, uint64_t generation, uint64_t cache_bytes);

    //! Everything that is wrong: with the map, as CatalogTree::FindProblems, and pages that are in use by nothing, or by two, or in
    //! space that files have. The mutex of the store is held, shared; nothing was changed since the last checkpoint.
    //! `visit_file`: as for CatalogTree.
    std::vector<std::string> FindProblems(const CatalogTree::VisitFile &visit_file = nullptr) const;

    ZoneStock zones;
    PageSpace pages;
    PageStore store;
    CatalogTree catalog;
    std::vector<uint64_t> map_units; //!< where the map of the last checkpoint lies
    //! Why nothing may be written: the map cannot be read, or makes no sense. Empty when all is well.
    std::string map_problem;
};

//! The free space of a mount: what neither files have nor pages lie in. Takes the mutex of the store, shared. Throws
//! Error, as a page that is read.
FreeSpace FindFreeSpace(MetadataTrees &trees, const SpaceMap::Area &area);

} // namespace rawduck
