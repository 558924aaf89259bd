#include "volume/catalog/free_space.hpp"

#include "common/invariant.hpp"
#include "common/units.hpp"

#include <algorithm>

namespace rawduck {

FreeSpace::FreeSpace(const SpaceMap::Area &area, const std::vector<GroupSummary> &summaries,
                     ReadGroup read_group)
    : area_(area), read_group_(std::move(read_group)) {
    RAWDUCK_INVARIANT(summaries.size() == area.Groups(), "there is a summary of each group");
    while (leaves_ < summaries.size()) {
        leaves_ *= 2;
    }
    longest_.resize(2 * leaves_);
    for (uint64_t group = 0; group < summaries.size(); group++) {
        longest_[leaves_ + group] = summaries[group].longest_free;
        free_in_group_.push_back(summaries[group].free_units);
        free_units_ += summaries[group].free_units;
    }
    for (uint64_t node = leaves_; node-- > 1;) {
        longest_[node] = std::max(longest_[2 * node], longest_[2 * node + 1]);
    }
}

bool FreeSpace::IsInside(uint64_t start, uint64_t units) const {
    return units > 0 && start >= area_.start && start < area_.end && units <= area_.end - start;
}

SpaceMap &FreeSpace::Group(uint64_t group) {
    const auto found = loaded_.find(group);
    return found != loaded_.end() ? found->second : loaded_.emplace(group, read_group_(group)).first->second;
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

Extent FreeSpace::Allocate(uint64_t wanted, uint64_t hint, bool from_the_end, uint64_t keep_free) {
    wanted = std::min(wanted, free_units_ - std::min(free_units_, keep_free));
    if (wanted == 0) {
        return Extent{};
    }
    if (IsInside(hint, 1) && Group(GroupOf(hint)).AllFree(static_cast<uint32_t>(hint % GROUP_UNITS), 1)) {
        return TakeAt(hint, wanted);
    }
    const auto in_group = static_cast<uint32_t>(std::min<uint64_t>(wanted, GROUP_UNITS));
    const auto needed = std::min<uint32_t>(in_group, longest_[1]);
    RAWDUCK_INVARIANT(needed > 0, "where units are free there is a free run");
    const uint64_t group = FindGroup(needed, from_the_end);
    const uint32_t run = Group(group).FindRun(needed, from_the_end);
    RAWDUCK_INVARIANT(run < GROUP_UNITS, "a group has the free run that its summary tells of");
    return TakeAt(group * GROUP_UNITS + run, from_the_end ? needed : wanted);
}

// What is free there, up to what is wanted; beyond the end of the group as far as it goes on being free.
Extent FreeSpace::TakeAt(uint64_t start, uint64_t wanted) {
    uint64_t units = 0;
    wanted = std::min(wanted, area_.end - start);
    ForEachPiece(start, wanted, [&](uint64_t group, uint32_t first, uint32_t length) {
        const uint32_t run = Group(group).FreeRunAt(first, length);
        units += run;
        return run == length;
    });
    SetUsed(start, units, true);
    return Extent{0, start, units};
}

uint64_t FreeSpace::AllocateAligned(uint32_t units) {
    RAWDUCK_INVARIANT(units > 0 && GROUP_UNITS % units == 0, "an aligned piece of a group is wanted");
    const uint64_t highest = FindGroup(units, true);
    for (uint64_t end = highest == free_in_group_.size() ? 0 : highest + 1; end > 0; end--) {
        const uint64_t group = end - 1;
        if (longest_[leaves_ + group] < units) {
            continue;
        }
        const SpaceMap &map = Group(group);
        for (uint32_t behind = GROUP_UNITS; behind > 0; behind -= units) {
            const uint32_t first = behind - units;
            if (map.AllFree(first, units)) {
                SetUsed(group * GROUP_UNITS + first, units, true);
                return group * GROUP_UNITS + first;
            }
        }
    }
    return 0;
}

void FreeSpace::SetUsed(uint64_t start, uint64_t units, bool used) {
    ForEachPiece(start, units, [&](uint64_t group, uint32_t first, uint32_t length) {
        SpaceMap &map = loaded_.find(group)->second;
        map.Set(first, length, used);
        const GroupSummary summary = map.Summary();
        free_units_ += summary.free_units;
        free_units_ -= free_in_group_[group];
        free_in_group_[group] = summary.free_units;
        SetLongest(group, summary.longest_free);
        return true;
    });
}

void FreeSpace::SetLongest(uint64_t group, uint16_t longest) {
    uint64_t node = leaves_ + group;
    longest_[node] = longest;
    while (node > 1) {
        node /= 2;
        longest_[node] = std::max(longest_[2 * node], longest_[2 * node + 1]);
    }
}

bool FreeSpace::Claim(uint64_t start, uint64_t units) {
    const bool free = IsInside(start, units) &&
                      ForEachPiece(start, units, [&](uint64_t group, uint32_t first, uint32_t length) {
                          return Group(group).AllFree(first, length);
                      });
    if (free) {
        SetUsed(start, units, true);
    }
    return free;
}

bool FreeSpace::Free(uint64_t start, uint64_t units) noexcept {
    const bool used = IsInside(start, units) &&
                      ForEachPiece(start, units, [&](uint64_t group, uint32_t first, uint32_t length) {
                          const auto found = loaded_.find(group);
                          RAWDUCK_INVARIANT(found != loaded_.end(), "what is given back is known");
                          return found->second.AllUsed(first, length);
                      });
    if (used) {
        SetUsed(start, units, false);
    }
    return used;
}

void FreeSpace::Load(const Extent &extent) {
    ForEachPiece(extent.start, extent.units, [&](uint64_t group, uint32_t, uint32_t) {
        Group(group);
        return true;
    });
}

std::vector<Extent> FreeSpace::FreeParts(uint64_t start, uint64_t units) {
    std::vector<Extent> parts;
    const uint64_t begin = std::max(start, area_.start), end = std::min(start + units, area_.end);
    if (begin >= end) {
        return parts;
    }
    ForEachPiece(begin, end - begin, [&](uint64_t group, uint32_t first, uint32_t length) {
        const SpaceMap &map = Group(group);
        const uint32_t behind = first + length;
        for (uint32_t at = map.Next(first, false); at < behind;) {
            const uint32_t run = map.FreeRunAt(at, behind - at);
            const uint64_t unit = group * GROUP_UNITS + at;
            if (!parts.empty() && parts.back().start + parts.back().units == unit) {
                parts.back().units += run;
            } else {
                parts.push_back(Extent{0, unit, run});
            }
            at = map.Next(at + run, false);
        }
        return true;
    });
    return parts;
}

} // namespace rawduck
