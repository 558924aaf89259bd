//! The durable state of a volume's files in metadata trees: what a mount finds. Every record of the log is applied
//! to it, by the same code when it is written and when it is replayed.
//!
//!     names     path -> id of the file
//!     files     id -> FileEntry
//!     tails     id, number of the piece -> bytes behind the last whole LBA
//!     space     SpaceTree: what the extents of all files cover
//!     references     ReferenceTree: what more than one refers to
//!
//! A clone shares the trees of the file that it comes from, and a piece of an extent belongs to whoever refers to it: to
//! leaves of trees, and entries. Before a shared page is changed, the file is given a copy of it, which refers to
//! everything that the page refers to.
#pragma once

#include "volume/catalog/catalog_entry.hpp"
#include "volume/catalog/file_lists.hpp"
#include "volume/catalog/space_tree.hpp"
#include "volume/tree/reference_tree.hpp"

#include <memory>
#include <optional>
#include <set>

namespace rawduck {

//! Bytes of a tail in one entry: with LBAs of 4096 bytes a tail is too long for one.
constexpr uint64_t TAIL_PIECE_BYTES = 2048;

//! Where the trees are, as a superblock says.
struct CatalogRoots {
    TreeRoot names, files, tails, space_maps, space_summaries, references;
};
static_assert(sizeof(CatalogRoots) == 144, "layout is part of the format");

//! The mutex of the store guards it: shared for what is const, exclusive for the rest. Reading throws what
//! PageStore::Read throws, and Error CORRUPT for entries that make no sense.
class CatalogTree {
  public:
    CatalogTree(PageStore &store, const CatalogRoots &roots, uint32_t lba_size, const SpaceMap::Area &area);

    //! False, with `problem`, when the item contradicts the state, which is then unchanged. When it throws, the
    //! change may be made in part, and the next call must be with the same item: it goes on with it.
    bool Apply(const Item &item, std::string &problem);

    //! The data area ends there from now on: see SpaceTree::Grow. Not while an item is applied.
    void Grow(uint64_t data_end);

    //! From now on the space that items free is added to the list, if there is one, before they free it.
    void CollectFreed(std::vector<Extent> *freed) { freed_ = freed; }

    std::optional<uint64_t> IdOf(std::string_view name) const;
    //! Calls `visit` with each name from `from` on, in order, and the id of the file, until it returns false.
    void ScanNames(std::string_view from,
                   const std::function<bool(std::string_view name, uint64_t file_id)> &visit) const;
    std::optional<FileEntry> Find(uint64_t file_id) const;
    std::string Tail(uint64_t file_id, const FileEntry &entry) const;
    std::vector<Extent> Extents(const FileEntry &entry, uint64_t from, uint64_t to) const;
    std::vector<Hole> Holes(const FileEntry &entry) const;
    //! All of a file, which is there.
    CatalogEntry Load(uint64_t file_id) const;
    //! The highest that a file has; 0 when there is none.
    uint64_t LastId() const;
    const SpaceTree &Space() const { return space_; }
    const ReferenceTree &References() const { return references_; }

    CatalogRoots Roots() const;

    //! Everything that is wrong: with the trees and their pages, files without names and names without files,
    //! sizes without extents, space that is in use and belongs to none, and references that are not as many as the tree
    //! of references says. Calls `visit_page` for each page, once for those that files share, and `visit_file`, if there
    //! is one, with each file that is sound in itself, in the order of their ids.
    using VisitFile = std::function<void(uint64_t file_id, CatalogEntry file)>;
    std::vector<std::string> FindProblems(const std::function<void(const PagePointer &)> &visit_page,
                                          const VisitFile &visit_file = nullptr) const;
    //! What is wrong with a file in itself, and with its name. `file`: all of it, where that is nothing.
    std::vector<std::string> FindProblemsOf(uint64_t file_id, CatalogEntry &file) const;

  private:
    using Steps = std::vector<std::function<void()>>;
    using SharedEntry = std::shared_ptr<FileEntry>;

    bool Plan(const Item &item, std::string &problem);
    bool PlanCreate(const Item &item, std::string &problem);
    bool PlanExtents(const SharedEntry &entry, const Item &item, std::string &problem);
    bool PlanRemap(const SharedEntry &entry, const Item &item, std::string &problem);
    bool PlanSize(const SharedEntry &entry, const Item &item, std::string &problem);
    bool PlanMove(const SharedEntry &entry, const Item &item, std::string &problem);
    bool PlanClone(const SharedEntry &source, const Item &item, std::string &problem);
    void PlanRemove(uint64_t file_id, const SharedEntry &entry);
    void PlanReferences();
    void PlanRelease(const std::vector<Extent> &extents);
    // catalog_sharing.cpp
    void ShareTree(const TreeRoot &root);
    void OwnExtents(const SharedEntry &entry, uint64_t from, const std::optional<uint64_t> &to);
    void OwnHoles(const SharedEntry &entry);
    bool OwnPage(const Tree::Located &place, const TreePage &page, bool extents);
    std::vector<PagePointer> LeaveTrees(const FileEntry &entry, std::vector<Extent> &gone);
    void PlanSpace(std::vector<Extent> extents, bool used);
    void PlanStore(uint64_t file_id, const SharedEntry &entry);
    void RunSteps();
    void ForgetPlan();
    SharedEntry TakeEntry(uint64_t file_id);
    bool IsFreeSpace(std::vector<Extent> extents) const;
    void PutTail(uint64_t file_id, std::string_view tail, uint32_t old_bytes);
    FileLists ListsOf(FileEntry &entry) const { return FileLists(store_, entry, &references_); }
    // catalog_check.cpp
    struct Recount;
    static uint64_t IdIn(std::string_view value);
    std::vector<std::string> FindProblemsIn(uint64_t file_id, FileEntry &entry,
                                            const Tree::LookBelow &visit_page,
                                            const std::function<void(const Extent &)> &visit_extent,
                                            CatalogEntry &file) const;
    void FindFileProblems(uint64_t file_id, std::string_view bytes, Recount &recount) const;
    void CountExtent(const std::string &name, const Extent &extent, Recount &recount) const;
    void CountPiece(const std::string &name, uint64_t start, uint64_t units, Recount &recount) const;
    void CompareSpace(Recount &recount) const;
    void CompareReferences(Recount &recount) const;

    PageStore &store_;
    const uint32_t lba_size_;
    SpaceMap::Area area_;
    Tree names_, files_, tails_;
    SpaceTree space_;
    ReferenceTree references_;

    //! What is to be done for the item that is being applied, each step so that it may be done again, and how
    //! much of it was done. An item that was interrupted goes on here.
    Steps steps_;
    size_t steps_done_ = 0;
    std::vector<Extent> *freed_ = nullptr;
    std::map<uint64_t, SharedEntry> changing_; //!< entries that differ from those in the tree of files
    //! While steps are planned: what references they need, which the tree has before the first step, and the shared
    //! pages of which there will be copies.
    ReferenceChanges reference_changes_;
    std::set<uint64_t> copied_pages_;
};

} // namespace rawduck
