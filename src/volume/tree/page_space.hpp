//! Where pages of metadata trees lie: in zones of 1 MiB that are taken from the volume's free space as they are
//! needed and go back when nothing is left in them. Which pages of a zone are in use is kept here, and written
//! as a map with each checkpoint, so that finding room for a page never changes a page.
//!
//! A page that the durable checkpoint refers to is never overwritten: once it is not needed any more it rests,
//! until a checkpoint without it is durable.
#pragma once

#include "volume/tree/tree_page.hpp"

#include <bitset>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace rawduck {

constexpr uint32_t ZONE_PAGES = 64;
constexpr uint64_t ZONE_UNITS = ZONE_PAGES * TREE_PAGE_UNITS;

//! Not thread-safe: the mutex of the PageStore guards it.
class PageSpace {
  public:
    //! Takes ZONE_UNITS contiguous free allocation units and returns the first; 0 when there are none.
    using TakeZone = std::function<uint64_t()>;
    //! Called with the first allocation unit of a zone that is free again. Does not throw.
    using GiveZone = std::function<void(uint64_t)>;

    PageSpace(TakeZone take_zone, GiveZone give_zone);

    //! Makes sure that so many pages can be taken. Throws Error NO_SPACE; then nothing has changed but zones.
    void Reserve(uint64_t pages);
    //! The allocation unit of a page that is free. Throws nothing after Reserve.
    uint64_t Take();
    //! For a page that no checkpoint refers to, neither the durable one nor one that is being written.
    void Give(uint64_t unit) noexcept;
    //! For a page that one of them may refer to, and the next one will not.
    void Rest(uint64_t unit) noexcept;

    //! Begins a checkpoint: what has rested until now is free once it is durable. Returns the map of the pages
    //! that it uses, which includes those that were taken for the map itself. `room`: a text whose capacity is
    //! MapBytes(), so that this throws nothing. `spare_zones`: how many empty ones may go back, and cannot be used
    //! until they have.
    std::string Freeze(std::string room, uint64_t spare_zones) noexcept;
    //! Bytes of the map that Freeze would return, with so many zones more.
    uint64_t MapBytes(uint64_t more_zones = 0) const;
    //! The checkpoint that Freeze has begun is durable.
    void FrozenIsDurable() noexcept;

    //! Takes over the map of the checkpoint that a mount has read, before anything else is called. Returns what
    //! is wrong with it, or nothing.
    std::string Load(std::string_view map, uint64_t data_start, uint64_t data_end);

    //! Zones by their first allocation unit, for whoever builds the free space, or checks it.
    std::vector<uint64_t> Zones() const;
    bool InUse(uint64_t unit) const;
    uint64_t UsedPages() const { return used_pages_; }
    //! Of the checkpoint that was begun last.
    uint64_t FrozenPages() const { return frozen_pages_; }

  private:
    using Pages = std::bitset<ZONE_PAGES>;
    struct Zone {
        Pages used;
        Pages resting;         //!< given up since the last Freeze
        Pages resting_frozen;  //!< given up before it
        bool released = false; //!< not in the map of the checkpoint that is being written
        bool Empty() const { return used.none(); }
    };
    using ZoneMap = std::map<uint64_t, Zone>;
    ZoneMap::iterator ZoneOf(uint64_t unit);

    const TakeZone take_zone_;
    const GiveZone give_zone_;
    ZoneMap zones_; //!< by first allocation unit
    uint64_t used_pages_ = 0, frozen_pages_ = 0;
    uint64_t room_ = 0;      //!< pages that can be taken
    uint64_t next_zone_ = 0; //!< where the search for a free page goes on
};

} // namespace rawduck
