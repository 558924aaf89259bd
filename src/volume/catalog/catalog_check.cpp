#include "common/error.hpp"
#include "volume/catalog/catalog_tree.hpp"
#include "volume/tree/number_key.hpp"

#include <algorithm>

namespace rawduck {

//! All references, counted anew.
struct CatalogTree::Recount {
    explicit Recount(const std::function<void(const PagePointer &)> &visit_page_p)
        : visit_page(visit_page_p) {}

    const std::function<void(const PagePointer &)> &visit_page;
    std::set<uint64_t> pages;          //!< of the trees of files
    std::map<uint64_t, SpaceMap> used; //!< by group
    UnitCounts shared;                 //!< how many refer to it, where it is more than one
    std::vector<std::string> problems;
};

std::vector<std::string>
CatalogTree::FindProblems(const std::function<void(const PagePointer &)> &visit_page) const {
    Recount recount(visit_page);
    std::vector<std::string> &problems = recount.problems;
    for (const Tree *tree : {&names_, &files_, &tails_}) {
        for (std::string &problem : tree->FindProblems(visit_page)) {
            problems.push_back(std::move(problem));
        }
    }
    for (std::string &problem : space_.FindProblems(visit_page)) {
        problems.push_back(std::move(problem));
    }
    for (std::string &problem : references_.FindProblems(visit_page)) {
        problems.push_back(std::move(problem));
    }
    if (!problems.empty()) {
        return problems; // what cannot be read cannot be compared
    }
    uint64_t files = 0;
    files_.Scan("", [&](std::string_view key, std::string_view bytes) {
        if (key.size() != NumberKey::BYTES) {
            problems.emplace_back("the tree of files holds something else");
            return false;
        }
        FindFileProblems(NumberKey::NumberOf(key), bytes, recount);
        files++;
        return true;
    });
    FindNameProblems(files, problems);
    const uint64_t groups = area_.Groups();
    for (uint64_t group = 0; group < groups; group++) {
        const auto counted = recount.used.try_emplace(group, group, area_).first;
        if (space_.Map(group).Bytes() != counted->second.Bytes()) {
            problems.push_back("what is in use in space group " + std::to_string(group) +
                               " is not what files have there");
        }
        recount.used.erase(counted);
    }
    CompareReferences(recount);
    return problems;
}

void CatalogTree::FindFileProblems(uint64_t file_id, std::string_view bytes, Recount &recount) const {
    std::vector<std::string> &problems = recount.problems;
    try {
        FileEntry entry = FileEntry::Decode(file_id, bytes);
        const Tree::LookBelow visit_page = [&](const PagePointer &page) {
            if (recount.pages.insert(page.unit).second) {
                recount.visit_page(page);
                return true;
            }
            const uint64_t counted = recount.shared.First(page.unit, page.unit + 1).count;
            recount.shared.Set(page.unit, TREE_PAGE_UNITS, std::max<uint64_t>(counted, 1) + 1);
            return false;
        };
        const std::vector<std::string> found =
            FileLists(store_, entry).FindProblems(visit_page, [&](const Extent &extent) {
                CountExtent(entry.name, extent, recount);
            });
        problems.insert(problems.end(), found.begin(), found.end());
        if (!found.empty()) {
            return;
        }
        if (IdOf(entry.name).value_or(0) != file_id) {
            problems.push_back("file \"" + entry.name + "\" cannot be found under its name");
        }
        if (entry.tail_bytes != entry.size % lba_size_) {
            problems.push_back("file \"" + entry.name + "\": its last bytes do not match its size");
        }
        Tail(file_id, entry); // throws when it is not whole
    } catch (const Error &error) {
        problems.emplace_back(error.what());
    }
}

void CatalogTree::CountExtent(const std::string &name, const Extent &extent, Recount &recount) const {
    if (!space_.Contains(extent)) {
        recount.problems.push_back("file \"" + name + "\" has an extent outside the data area");
        return;
    }
    const uint64_t end = extent.start + extent.units;
    for (uint64_t at = extent.start; at < end;) {
        const uint64_t group = GroupOf(at), piece_end = std::min(end, (group + 1) * GROUP_UNITS);
        SpaceMap &map = recount.used.try_emplace(group, group, area_).first->second;
        const auto first = static_cast<uint32_t>(at % GROUP_UNITS);
        const auto units = static_cast<uint32_t>(piece_end - at);
        if (!map.AllFree(first, units)) {
            CountPiece(name, at, units, recount);
        }
        map.Set(first, units, true);
        at = piece_end;
    }
}

// Units that somebody was seen to refer to before are counted from the second time on.
void CatalogTree::CountPiece(const std::string &name, uint64_t start, uint64_t units,
                             Recount &recount) const {
    const SpaceMap &map = recount.used.find(GroupOf(start))->second;
    const uint64_t end = start + units;
    for (uint64_t at = start; at < end;) {
        const auto first = static_cast<uint32_t>(at % GROUP_UNITS);
        const uint32_t free = map.FreeRunAt(first, static_cast<uint32_t>(end - at));
        if (free > 0) {
            at += free;
            continue;
        }
        const uint64_t used_end = std::min<uint64_t>(end, at + (map.Next(first, false) - first));
        const UnitCounts::Piece counted = recount.shared.First(at, used_end);
        const ReferencedUnits said = references_.First(at, at + counted.units);
        const uint64_t now = std::max<uint64_t>(counted.count, 1) + 1;
        if (now > said.references) {
            recount.problems.push_back("file \"" + name +
                                       "\" shares space with another in allocation units " +
                                       std::to_string(at) + " to " + std::to_string(used_end));
            return;
        }
        recount.shared.Set(at, said.units, now);
        at += said.units;
    }
}

void CatalogTree::CompareReferences(Recount &recount) const {
    const auto complain = [&](uint64_t start, uint64_t said, uint64_t counted) {
        recount.problems.push_back("the metadata says that " + std::to_string(said) +
                                   " refer to allocation unit " + std::to_string(start) + ", and " +
                                   std::to_string(counted) + " do");
    };
    references_.Scan([&](const ReferencedUnits &range) {
        recount.shared.ForEach(range.start, range.units, [&](const UnitCounts::Piece &piece) {
            if (piece.count != range.references) {
                complain(piece.start, range.references, std::max<uint64_t>(piece.count, 1));
            }
        });
    });
    recount.shared.ForAll([&](const UnitCounts::Piece &piece) {
        const uint64_t end = piece.start + piece.units;
        for (uint64_t at = piece.start; at < end;) {
            const ReferencedUnits said = references_.First(at, end);
            if (said.references == 1) {
                complain(at, 1, piece.count);
            }
            at += said.units;
        }
    });
}

// Each file is found under its name; so if there are as many names as files, there is no other name.
void CatalogTree::FindNameProblems(uint64_t files, std::vector<std::string> &problems) const {
    uint64_t names = 0;
    ScanNames("", [&](std::string_view, uint64_t) {
        names++;
        return true;
    });
    if (names != files) {
        problems.push_back(std::to_string(names) + " names belong to " + std::to_string(files) + " files");
    }
}

} // namespace rawduck
