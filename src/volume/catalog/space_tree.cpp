#include "volume/catalog/space_tree.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/tree/number_key.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! Summaries that lie in one entry.
constexpr uint64_t BLOCK_GROUPS = 512;
static_assert(BLOCK_GROUPS * sizeof(GroupSummary) <= TREE_ENTRY_BYTES_MAX - NumberKey::BYTES,
              "summaries fit into an entry");

[[noreturn]] void ThrowImpossible(const char *what) {
    throw Error(ErrorCode::CORRUPT, std::string("the metadata of free space holds ") + what +
                                        "; `rawduck check` tells what it concerns");
}

} // namespace

bool SpaceTree::Contains(const Extent &extent) const {
    return extent.units > 0 && extent.start >= area_.start && extent.start < area_.end &&
           extent.units <= area_.end - extent.start;
}

// Until `visit` returns false. Returns whether it never did.
template <class VISIT> bool SpaceTree::ForEachPiece(const Extent &extent, const VISIT &visit) const {
    RAWDUCK_INVARIANT(Contains(extent), "what is in use or free lies in the data area");
    const uint64_t end = extent.start + extent.units;
    for (uint64_t at = extent.start; at < end;) {
        const uint64_t group = GroupOf(at);
        const uint64_t piece_end = std::min(end, (group + 1) * GROUP_UNITS);
        const Piece piece{group, static_cast<uint32_t>(at % GROUP_UNITS),
                          static_cast<uint32_t>(piece_end - at)};
        if (!visit(piece)) {
            return false;
        }
        at = piece_end;
    }
    return true;
}

bool SpaceTree::AllFree(const Extent &extent) const {
    return ForEachPiece(
        extent, [&](const Piece &piece) { return Map(piece.group).AllFree(piece.first, piece.units); });
}

bool SpaceTree::AllUsed(const Extent &extent) const {
    return ForEachPiece(
        extent, [&](const Piece &piece) { return Map(piece.group).AllUsed(piece.first, piece.units); });
}

// The summary is put last, and is that of the bitmap whether this changed it or an attempt before it.
void SpaceTree::Set(const Extent &extent, bool used) {
    ForEachPiece(extent, [&](const Piece &piece) {
        SpaceMap map = Map(piece.group);
        map.Set(piece.first, piece.units, used);
        Store(piece.group, map);
        StoreSummary(piece.group, map.Summary());
        return true;
    });
}

// A group of which everything is in use is an entry without bytes; one of which nothing is has none.
SpaceMap SpaceTree::Map(uint64_t group) const {
    SpaceMap map(group, area_);
    const auto stored = maps_.Find(NumberKey(group));
    if (stored && stored->empty()) {
        map.Set(0, GROUP_UNITS, true);
    } else if (stored && stored->size() != SpaceMap::BYTES) {
        ThrowImpossible("a bitmap of another length");
    } else if (stored) {
        map.Load(*stored);
    }
    return map;
}

void SpaceTree::Store(uint64_t group, const SpaceMap &map) {
    if (map.Empty()) {
        maps_.Erase(NumberKey(group));
    } else {
        maps_.Put(NumberKey(group), map.Full() ? std::string() : map.Bytes());
    }
}

std::vector<GroupSummary> SpaceTree::Block(uint64_t block) const {
    std::vector<GroupSummary> summaries(BLOCK_GROUPS);
    const auto stored = summaries_.Find(NumberKey(block));
    if (stored && stored->size() != BLOCK_GROUPS * sizeof(GroupSummary)) {
        ThrowImpossible("summaries of another length");
    } else if (stored) {
        memcpy(static_cast<void *>(summaries.data()), stored->data(), stored->size());
        return summaries;
    }
    for (uint64_t i = 0; i < BLOCK_GROUPS; i++) {
        summaries[i] = SpaceMap::EmptySummary(block * BLOCK_GROUPS + i, area_);
    }
    return summaries;
}

void SpaceTree::StoreSummary(uint64_t group, const GroupSummary &summary) {
    std::vector<GroupSummary> summaries = Block(group / BLOCK_GROUPS);
    summaries[group % BLOCK_GROUPS] = summary;
    PutBlock(group / BLOCK_GROUPS, summaries);
}

void SpaceTree::PutBlock(uint64_t block, const std::vector<GroupSummary> &summaries) {
    summaries_.Put(NumberKey(block),
                   {reinterpret_cast<const char *>(summaries.data()), BLOCK_GROUPS * sizeof(GroupSummary)});
}

// What is stored says of units behind the end: of a group without a bitmap of its own that everything is in use, of a
// summary that nothing is free there. The rest is not stored, and follows from the area.
void SpaceTree::Grow(uint64_t end) {
    RAWDUCK_INVARIANT(end >= area_.end && area_.end > area_.start, "the data area only grows");
    const SpaceMap::Area grown{area_.start, end};
    const uint64_t last = GroupOf(area_.end - 1), block = last / BLOCK_GROUPS;
    const auto stored = maps_.Find(NumberKey(last));
    if (stored && stored->empty()) {
        maps_.Put(NumberKey(last), Map(last).Bytes());
    }
    if (summaries_.Find(NumberKey(block))) {
        std::vector<GroupSummary> summaries = Block(block);
        SpaceMap map(last, grown);
        if (stored) {
            map.Load(Map(last).Bytes());
        }
        summaries[last % BLOCK_GROUPS] = map.Summary();
        for (uint64_t group = last + 1; group < (block + 1) * BLOCK_GROUPS; group++) {
            summaries[group % BLOCK_GROUPS] = SpaceMap::EmptySummary(group, grown);
        }
        PutBlock(block, summaries);
    }
    area_ = grown;
}

std::vector<GroupSummary> SpaceTree::Summaries() const {
    std::vector<GroupSummary> all;
    const uint64_t groups = area_.Groups();
    for (uint64_t block = 0; block * BLOCK_GROUPS < groups; block++) {
        const std::vector<GroupSummary> summaries = Block(block);
        all.insert(all.end(), summaries.begin(), summaries.end());
    }
    all.resize(groups);
    return all;
}

std::vector<std::string>
SpaceTree::FindProblems(const std::function<void(const PagePointer &)> &visit_page) const {
    std::vector<std::string> problems = maps_.FindProblems(visit_page);
    for (std::string &problem : summaries_.FindProblems(visit_page)) {
        problems.push_back(std::move(problem));
    }
    if (!problems.empty()) {
        return problems; // what cannot be read cannot be scanned
    }
    const std::vector<GroupSummary> summaries = Summaries();
    for (uint64_t group = 0; group < summaries.size(); group++) {
        if (!(Map(group).Summary() == summaries[group])) {
            problems.push_back("the summary of space group " + std::to_string(group) +
                               " is not that of its bitmap");
        }
    }
    return problems;
}

} // namespace rawduck
