//! The extents and holes of a file, wherever they lie: in its entry, or in trees of their own.
#pragma once

#include "volume/catalog/file_entry.hpp"

#include <functional>

namespace rawduck {

//! Works on an entry in memory, which the caller puts into the tree of files afterwards. The mutex of the store
//! guards it: shared for what is const, exclusive for the rest. Reading throws what PageStore::Read throws. A
//! change that throws may be made in part, with the entry saying what is there: made again, it is whole.
class FileLists {
  public:
    //! `references`: as for Tree. Where something else refers to pages that a change is to change, the file is given
    //! copies of them before.
    FileLists(PageStore &store, FileEntry &entry, const ReferenceTree *references = nullptr)
        : store_(store), entry_(entry), references_(references) {}

    //! What covers [from, to), clipped to it, in order.
    std::vector<Extent> Extents(uint64_t from, uint64_t to) const;
    //! The extent begins where the file ends; or, made again, is what is there.
    void Append(const Extent &extent);
    //! These ranges, which are in order and covered, lie there now.
    void Remap(const std::vector<Extent> &moved);
    //! Gives up what lies behind.
    void CutUnits(uint64_t units);

    std::vector<Hole> Holes() const;
    void SetHoles(const std::vector<Hole> &holes);
    //! Whether any hole does not end before `size` bytes.
    bool HolesReachBeyond(uint64_t size) const;
    //! Gives up what lies behind `size` bytes.
    void CutHoles(uint64_t size);

    //! As that of Tree, for the tree that the extents, or the holes, lie in.
    void CopyExtentPage(std::string_view key, uint16_t depth);
    void CopyHolePage(std::string_view key, uint16_t depth);

    //! All of both, in order.
    struct Contents {
        std::vector<Extent> extents;
        std::vector<Hole> holes;
    };
    //! As that of Tree, for the trees of the file; also gaps, and lists that contradict its size. `visit` as for
    //! ExtentTree. `contents`: of a file without problems.
    std::vector<std::string> FindProblems(const Tree::LookBelow &visit_page,
                                          const std::function<void(const Extent &)> &visit,
                                          Contents &contents) const;

  private:
    template <class CHANGE> void ChangeExtents(const CHANGE &change);
    template <class CHANGE> void ChangeHoles(const CHANGE &change);
    void MoveExtentsToTree();
    void MoveExtentsToEntry();

    PageStore &store_;
    FileEntry &entry_;
    const ReferenceTree *references_;
};

} // namespace rawduck
