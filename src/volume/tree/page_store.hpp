//! The pages of a volume's metadata trees: read when they are needed, changed in memory, written by checkpoints.
//!
//! A page is changed in place only if the checkpoint under way does not contain it. Any other page gets a copy
//! at a place of its own first (copy-on-write), so a checkpoint is a set of pages that nobody changes, and can be
//! written while changes go on.
//!
//! Checkpoint: Freeze, WriteFrozen, then the caller makes everything durable and says so with FrozenIsDurable.
#pragma once

#include "io/block_io.hpp"
#include "volume/tree/page_space.hpp"

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace rawduck {

//! Thread-safe as each function says; "shared" and "exclusive" are ways to hold Mutex().
class PageStore {
  public:
    //! The contents of a page in memory.
    class Buffer;
    using ReadPage = std::shared_ptr<const Buffer>;

    //! `generation`: of the first checkpoint that will be written; above all that were used before.
    PageStore(BlockIo &io, const Uuid &uuid, PageSpace &space, uint64_t generation, uint64_t cache_bytes);
    ~PageStore();

    //! Guards all trees in the store, and its PageSpace.
    std::shared_mutex &Mutex() { return mutex_; }

    //! Shared. Throws Error IO or CORRUPT, which name the page.
    ReadPage Read(const PagePointer &place, uint16_t level);
    //! Shared. Throws Error CORRUPT when no page can be there, without reading it: for what is dropped unread.
    void RequirePlace(const PagePointer &place) const;

    //! Exclusive. Call before a change to a tree: so many calls of Writable and New will find what they need.
    //! Throws Error NO_SPACE, or std::bad_alloc.
    void Reserve(uint64_t pages);
    //! Exclusive. The page, to be changed until the next Freeze; `place` becomes that of the copy where one is
    //! made. Throws as Read does; after the page was read once since the last Reserve, it throws nothing.
    TreePage Writable(PagePointer &place, uint16_t level);
    //! Exclusive. A copy of the page, which stays as it is; `place` becomes that of the copy. Throws as Writable.
    TreePage Copy(PagePointer &place, uint16_t level);
    //! Exclusive. An empty page.
    TreePage New(PagePointer &place, uint16_t level);
    //! Exclusive. The tree does not use the page any more.
    void Drop(const PagePointer &place) noexcept;

    //! Exclusive. From now on changes belong to the next checkpoint. Returns the map of the pages of this one
    //! (PageSpace), and where the caller is to write it. Not while another checkpoint is under way.
    struct Frozen {
        uint64_t generation = 0;
        std::string map;
        std::vector<uint64_t> map_units; //!< pages for the map, in order
        uint64_t pages = 0;              //!< that WriteFrozen will write
    };
    //! `old_map_units`: where the map of the checkpoint before lies. `spare_zones`: see PageSpace::Freeze.
    Frozen Freeze(const std::vector<uint64_t> &old_map_units, uint64_t spare_zones = UINT64_MAX);
    //! Without the mutex. Writes the pages; the caller flushes. Throws Error IO.
    void WriteFrozen();
    //! Exclusive.
    void FrozenIsDurable();

    //! Shared.
    uint64_t DirtyPages() const { return dirty_.size(); }
    //! Of those on the device.
    uint64_t CachedPages() const;

  private:
    using Pages = std::map<uint64_t, std::shared_ptr<Buffer>>; //!< by allocation unit
    std::shared_ptr<Buffer> FindDirty(const PagePointer &place) const;
    std::shared_ptr<Buffer> FindClean(const PagePointer &place);
    std::string PlaceProblem(const PagePointer &place) const;
    [[noreturn]] void ThrowDamaged(const PagePointer &place, const std::string &problem) const;
    std::shared_ptr<Buffer> Load(const PagePointer &place, uint16_t level);
    void KeepClean(uint64_t unit, const std::shared_ptr<Buffer> &buffer);
    TreePage AddDirty(PagePointer &place);

    BlockIo &io_;
    const Uuid uuid_;
    PageSpace &space_;
    const uint64_t clean_max_; //!< pages

    mutable std::shared_mutex mutex_; //!< guards what follows up to clean_mutex_
    uint64_t generation_;             //!< of the next checkpoint
    Pages dirty_, frozen_;
    std::vector<Pages::node_type> spare_; //!< reserved

    //! Guards what follows; no other lock is taken under it. Pages that are on the device, least recently
    //! used first.
    mutable std::mutex clean_mutex_;
    std::list<uint64_t> clean_order_;
    struct Clean {
        std::shared_ptr<Buffer> buffer;
        std::list<uint64_t>::iterator order;
    };
    std::unordered_map<uint64_t, Clean> clean_;
};

class PageStore::Buffer {
  public:
    TreePage Page() { return TreePage(bytes_); }
    TreePage Page() const { return TreePage(static_cast<const char *>(bytes_)); }
    char *Bytes() { return bytes_; }
    const char *Bytes() const { return bytes_; }
    uint64_t generation = 0; //!< in which it was changed, or written

  private:
    alignas(ALLOCATION_UNIT_BYTES) char bytes_[TREE_PAGE_BYTES];
};

} // namespace rawduck
