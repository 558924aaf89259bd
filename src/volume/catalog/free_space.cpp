#include "volume/catalog/free_space.hpp"

#include "common/invariant.hpp"
#include "common/units.hpp"

#include <algorithm>

namespace rawduck {

FreeSpace::FreeSpace(const SpaceMap::Area &area, const std::vector<GroupSummary> &summaries,
                     const ReadGroup &read_group)
    : area_(area) {
    RAWDUCK_INVARIANT(summaries.size() == area.Groups(), "there is a summary of each group");
    MakeRoomForGroups();
    for (uint64_t group = 0; group < summaries.size(); group++) {
        SetSummary(group, summaries[group]);
        if (!IsUniform(group)) {
            SetSummary(group, mixed_.emplace(group, read_group(group)).first->second.Summary());
        }
    }
}

FreeSpace::FreeSpace(const SpaceMap::Area &area) : area_(area) {
    MakeRoomForGroups();
    for (uint64_t group = 0; group < area.Groups(); group++) {
        SetSummary(group, SpaceMap::EmptySummary(group, area));
    }
}

// For those of the area. Nothing is free in those that are new.
void FreeSpace::MakeRoomForGroups() {
    uint64_t leaves = leaves_;
    while (leaves < area_.Groups()) {
        leaves *= 2;
    }
    free_in_group_.resize(area_.Groups());
    if (longest_.empty() || leaves > leaves_) {
        std::vector<uint16_t> longest(2 * leaves);
        for (uint64_t leaf = 0; !longest_.empty() && leaf < leaves_; leaf++) {
            longest[leaves + leaf] = longest_[leaves_ + leaf];
        }
        for (uint64_t node = leaves; node-- > 1;) {
            longest[node] = std::max(longest[2 * node], longest[2 * node + 1]);
        }
        longest_.swap(longest);
        leaves_ = leaves;
    }
}

bool FreeSpace::IsInside(uint64_t start, uint64_t units) const {
    return units > 0 && start >= area_.start && start < area_.end && units <= area_.end - start;
}

bool FreeSpace::IsUniform(uint64_t group) const {
    return free_in_group_[group] == 0 ||
           free_in_group_[group] == SpaceMap::EmptySummary(group, area_).free_units;
}

// Null for a group that is uniform.
const SpaceMap *FreeSpace::Mixed(uint64_t group) const {
    if (IsUniform(group)) {
        return nullptr;
    }
    const auto found = mixed_.find(group);
    RAWDUCK_INVARIANT(found != mixed_.end(), "of what is partly free it is known which part");
    return &found->second;
}

//! The bitmap of a group, made where there is none.
SpaceMap &FreeSpace::Group(uint64_t group) {
    const auto found = mixed_.find(group);
    if (found != mixed_.end()) {
        return found->second;
    }
    SpaceMap map(group, area_);
    if (free_in_group_[group] == 0) {
        map.Set(0, GROUP_UNITS, true);
    }
    return mixed_.emplace(group, map).first->second;
}

// Until `visit` returns false, with the group, its first unit and how many. Returns whether it never did.
template <class VISIT>
bool FreeSpace::ForEachPiece(uint64_t start, uint64_t units, const VISIT &visit) const {
    for (const uint64_t end = start + units; start < end;) {
        const uint64_t group = GroupOf(start), piece_end = std::min(end, (group + 1) * GROUP_UNITS);
        if (!visit(group, static_cast<uint32_t>(start % GROUP_UNITS),
                   static_cast<uint32_t>(piece_end - start))) {
            return false;
        }
        start = piece_end;
    }
    return true;
}

uint32_t FreeSpace::FreeRunAt(uint64_t group, uint32_t first, uint32_t limit) const {
    if (const SpaceMap *map = Mixed(group)) {
        return map->FreeRunAt(first, limit);
    }
    const uint64_t unit = group * GROUP_UNITS + first;
    const bool free = free_in_group_[group] > 0 && unit >= area_.start && unit < area_.end;
    return free ? static_cast<uint32_t>(std::min<uint64_t>(limit, area_.end - unit)) : 0;
}

uint32_t FreeSpace::FreeRunAtEnd(uint64_t group) const {
    if (const SpaceMap *map = Mixed(group)) {
        return map->FreeRunAtEnd();
    }
    return (group + 1) * GROUP_UNITS <= area_.end ? free_in_group_[group] : 0;
}

// The number of groups when there is none.
uint64_t FreeSpace::FindGroup(uint64_t longest_min, bool from_the_end) const {
    if (longest_[1] < longest_min) {
        return free_in_group_.size();
    }
    uint64_t node = 1;
    while (node < leaves_) {
        const uint64_t preferred = 2 * node + (from_the_end ? 1 : 0);
        node = longest_[preferred] >= longest_min ? preferred : preferred ^ 1;
    }
    return node - leaves_;
}

// The unit at which it begins, of a group in which there is one.
uint64_t FreeSpace::FindRun(uint64_t group, uint32_t units, bool from_the_end) const {
    const uint64_t first = group * GROUP_UNITS;
    if (const SpaceMap *map = Mixed(group)) {
        const uint32_t run = map->FindRun(units, from_the_end);
        RAWDUCK_INVARIANT(run < GROUP_UNITS, "a group has the free run that its summary tells of");
        return first + run;
    }
    return from_the_end ? std::min(area_.end, first + GROUP_UNITS) - units : std::max(area_.start, first);
}

Extent FreeSpace::Allocate(uint64_t wanted, uint64_t hint, bool from_the_end, uint64_t keep_free) {
    wanted = std::min(wanted, free_units_ - std::min(free_units_, keep_free));
    if (wanted == 0) {
        return Extent{};
    }
    if (IsInside(hint, 1) && FreeRunAt(GroupOf(hint), static_cast<uint32_t>(hint % GROUP_UNITS), 1) > 0) {
        return TakeAt(hint, wanted);
    }
    const auto in_group = static_cast<uint32_t>(std::min<uint64_t>(wanted, GROUP_UNITS));
    const auto needed = std::min<uint32_t>(in_group, longest_[1]);
    RAWDUCK_INVARIANT(needed > 0, "where units are free there is a free run");
    const uint64_t start = FindRun(FindGroup(needed, from_the_end), needed, from_the_end);
    return TakeAt(start, from_the_end ? needed : wanted);
}

// What is free there, up to what is wanted; beyond the end of the group as far as it goes on being free.
Extent FreeSpace::TakeAt(uint64_t start, uint64_t wanted) {
    uint64_t units = 0;
    ForEachPiece(start, std::min(wanted, area_.end - start),
                 [&](uint64_t group, uint32_t first, uint32_t length) {
                     const uint32_t run = FreeRunAt(group, first, length);
                     units += run;
                     return run == length;
                 });
    SetUsed(start, units, true);
    return Extent{0, start, units};
}

uint64_t FreeSpace::AllocateAligned(uint32_t units, const MayTake &may_take) {
    RAWDUCK_INVARIANT(units > 0 && GROUP_UNITS % units == 0, "an aligned piece of a group is wanted");
    const uint64_t highest = FindGroup(units, true);
    for (uint64_t end = highest == free_in_group_.size() ? 0 : highest + 1; end > 0; end--) {
        const uint64_t group = end - 1;
        if (longest_[leaves_ + group] < units) {
            continue;
        }
        for (uint32_t behind = GROUP_UNITS; behind > 0; behind -= units) {
            const uint32_t first = behind - units;
            const uint64_t start = group * GROUP_UNITS + first;
            if (FreeRunAt(group, first, units) == units && (!may_take || may_take(start))) {
                SetUsed(start, units, true);
                return start;
            }
        }
    }
    return 0;
}

// A group of which all is free then, or nothing, needs no bitmap any more.
void FreeSpace::SetUsed(uint64_t start, uint64_t units, bool used) {
    const auto is_whole = [&](uint64_t group, uint32_t length) {
        return length == SpaceMap::EmptySummary(group, area_).free_units;
    };
    ForEachPiece(start, units, [&](uint64_t group, uint32_t, uint32_t length) {
        if (!is_whole(group, length)) {
            Group(group); // which may throw, so it comes first
        }
        return true;
    });
    ForEachPiece(start, units, [&](uint64_t group, uint32_t first, uint32_t length) {
        if (is_whole(group, length)) {
            mixed_.erase(group);
            SetSummary(group, used ? GroupSummary() : SpaceMap::EmptySummary(group, area_));
            return true;
        }
        const auto found = mixed_.find(group);
        found->second.Set(first, length, used);
        SetSummary(group, found->second.Summary());
        if (IsUniform(group)) {
            mixed_.erase(found);
        }
        return true;
    });
}

void FreeSpace::SetSummary(uint64_t group, const GroupSummary &summary) {
    free_units_ += summary.free_units;
    free_units_ -= free_in_group_[group];
    free_in_group_[group] = summary.free_units;
    uint64_t node = leaves_ + group;
    longest_[node] = summary.longest_free;
    while (node > 1) {
        node /= 2;
        longest_[node] = std::max(longest_[2 * node], longest_[2 * node + 1]);
    }
}

bool FreeSpace::Claim(uint64_t start, uint64_t units) {
    const bool free = IsInside(start, units) &&
                      ForEachPiece(start, units, [&](uint64_t group, uint32_t first, uint32_t length) {
                          return FreeRunAt(group, first, length) == length;
                      });
    if (free) {
        SetUsed(start, units, true);
    }
    return free;
}

bool FreeSpace::Free(uint64_t start, uint64_t units) {
    const bool used = IsInside(start, units) &&
                      ForEachPiece(start, units, [&](uint64_t group, uint32_t first, uint32_t length) {
                          const SpaceMap *map = Mixed(group);
                          return map ? map->AllUsed(first, length) : free_in_group_[group] == 0;
                      });
    if (used) {
        SetUsed(start, units, false);
    }
    return used;
}

std::vector<Extent> FreeSpace::FreeParts(uint64_t start, uint64_t units) const {
    std::vector<Extent> parts;
    const uint64_t begin = std::max(start, area_.start), end = std::min(start + units, area_.end);
    const auto add = [&](uint64_t unit, uint64_t run) {
        if (!parts.empty() && parts.back().start + parts.back().units == unit) {
            parts.back().units += run;
        } else if (run > 0) {
            parts.push_back(Extent{0, unit, run});
        }
    };
    ForEachPiece(begin, end - std::min(begin, end), [&](uint64_t group, uint32_t first, uint32_t length) {
        const uint64_t from = group * GROUP_UNITS;
        const uint32_t behind = first + length;
        const SpaceMap *map = Mixed(group);
        if (!map) {
            add(from + first, FreeRunAt(group, first, length));
            return true;
        }
        for (uint32_t at = map->Next(first, false); at < behind;) {
            const uint32_t run = map->FreeRunAt(at, behind - at);
            add(from + at, run);
            at = map->Next(at + run, false);
        }
        return true;
    });
    return parts;
}

// What the last group until now has in use is as before.
void FreeSpace::Grow(uint64_t end) {
    RAWDUCK_INVARIANT(end >= area_.end && area_.end > area_.start, "the data area only grows");
    const SpaceMap::Area before = area_, grown{area_.start, end};
    const uint64_t first = GroupOf(before.end - 1);
    SpaceMap last(first, grown);
    last.Load(Group(first).Bytes());
    area_ = grown;
    try {
        MakeRoomForGroups();
    } catch (...) {
        area_ = before;
        throw;
    }
    mixed_.find(first)->second = last;
    SetSummary(first, last.Summary());
    if (IsUniform(first)) {
        mixed_.erase(first);
    }
    for (uint64_t group = first + 1; group < area_.Groups(); group++) {
        SetSummary(group, SpaceMap::EmptySummary(group, area_));
    }
}

uint64_t FreeSpace::LargestFree() const {
    uint64_t largest = longest_[1], run = 0; // `run`: up to the end of the group before
    for (uint64_t group = 0; group < free_in_group_.size(); group++) {
        const uint32_t head = FreeRunAt(group, 0, GROUP_UNITS);
        largest = std::max(largest, run + head);
        run = head == GROUP_UNITS ? run + head : FreeRunAtEnd(group);
    }
    return largest;
}

} // namespace rawduck
