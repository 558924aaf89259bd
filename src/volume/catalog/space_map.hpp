//! Which allocation units are in use, for one group of them: a bitmap and what it comes to.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace rawduck {

//! Allocation units of a group: 64 MiB.
constexpr uint32_t GROUP_UNITS = 16 * 1024;

inline uint64_t GroupOf(uint64_t unit) {
    return unit / GROUP_UNITS;
}

//! What is known of a group without reading its bitmap.
struct GroupSummary {
    uint16_t free_units = 0;
    uint16_t longest_free = 0; //!< units of the longest free run inside the group
    bool operator==(const GroupSummary &other) const {
        return free_units == other.free_units && longest_free == other.longest_free;
    }
};
static_assert(sizeof(GroupSummary) == 4, "layout is part of the format");

//! A bit for each unit of a group, lowest first, set when it is in use. Not thread-safe.
class SpaceMap {
  public:
    static constexpr size_t BYTES = GROUP_UNITS / 8;

    //! The data area of a volume: units outside are in use. [start, end) in allocation units.
    struct Area {
        uint64_t start = 0, end = 0;
        uint64_t Groups() const { return end == 0 ? 0 : GroupOf(end - 1) + 1; }
    };

    //! A group of which nothing is in use but what lies outside the area.
    SpaceMap(uint64_t group, const Area &area);

    //! Takes over a bitmap of BYTES bytes, to which units outside the area do not belong.
    void Load(std::string_view bytes);
    //! BYTES bytes, with units outside the area as not in use.
    std::string Bytes() const;

    //! Units of the group, from 0; the range lies inside.
    void Set(uint32_t first, uint32_t units, bool used);
    bool AllFree(uint32_t first, uint32_t units) const { return !Any(first, units, true); }
    bool AllUsed(uint32_t first, uint32_t units) const { return !Any(first, units, false); }
    //! How many units from `first` on are free, and at most `limit`.
    uint32_t FreeRunAt(uint32_t first, uint32_t limit) const;
    //! How many units are free at the end of the group.
    uint32_t FreeRunAtEnd() const;
    //! Where a free run of so many units begins: the lowest, or with `from_the_end` the last units of the highest;
    //! GROUP_UNITS when there is none.
    uint32_t FindRun(uint32_t units, bool from_the_end) const;
    //! The first unit from `from` on that is free (or `used`); GROUP_UNITS when there is none.
    uint32_t Next(uint32_t from, bool used) const;

    GroupSummary Summary() const;
    //! Of a group of which nothing is in use.
    static GroupSummary EmptySummary(uint64_t group, const Area &area);
    //! Of two maps of the same group and area.
    bool operator==(const SpaceMap &other) const { return words_ == other.words_; }
    //! No unit of the area is in use, or every one.
    bool Empty() const;
    bool Full() const;

  private:
    static constexpr size_t WORDS = GROUP_UNITS / 64;
    using Words = std::array<uint64_t, WORDS>;
    bool Any(uint32_t first, uint32_t units, bool used) const;

    Words words_{};
    uint32_t begin_ = 0, end_ = 0; //!< of the area, in units of the group
};

} // namespace rawduck
