#include "common/error.hpp"
#include "volume/catalog/catalog_tree.hpp"
#include "volume/tree/number_key.hpp"

#include <algorithm>

namespace rawduck {

std::vector<std::string>
CatalogTree::FindProblems(const std::function<void(const PagePointer &)> &visit_page) const {
    std::vector<std::string> problems;
    for (const Tree *tree : {&names_, &files_, &tails_}) {
        for (std::string &problem : tree->FindProblems(visit_page)) {
            problems.push_back(std::move(problem));
        }
    }
    for (std::string &problem : space_.FindProblems(visit_page)) {
        problems.push_back(std::move(problem));
    }
    if (!problems.empty()) {
        return problems; // what cannot be read cannot be compared
    }
    std::map<uint64_t, SpaceMap> used; // by group
    uint64_t files = 0;
    files_.Scan("", [&](std::string_view key, std::string_view bytes) {
        if (key.size() != NumberKey::BYTES) {
            problems.emplace_back("the tree of files holds something else");
            return false;
        }
        FindFileProblems(NumberKey::NumberOf(key), bytes, visit_page, used, problems);
        files++;
        return true;
    });
    FindNameProblems(files, problems);
    const uint64_t groups = area_.Groups();
    for (uint64_t group = 0; group < groups; group++) {
        const auto counted = used.try_emplace(group, group, area_).first;
        if (space_.Map(group).Bytes() != counted->second.Bytes()) {
            problems.push_back("what is in use in space group " + std::to_string(group) +
                               " is not what files have there");
        }
        used.erase(counted);
    }
    return problems;
}

void CatalogTree::FindFileProblems(uint64_t file_id, std::string_view bytes,
                                   const std::function<void(const PagePointer &)> &visit_page,
                                   std::map<uint64_t, SpaceMap> &used,
                                   std::vector<std::string> &problems) const {
    try {
        FileEntry entry = FileEntry::Decode(file_id, bytes);
        const std::vector<std::string> found = FileLists(store_, entry).FindProblems(visit_page);
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
        CoverSpace(entry.name, Extents(entry, 0, entry.units), used, problems);
    } catch (const Error &error) {
        problems.emplace_back(error.what());
    }
}

void CatalogTree::CoverSpace(const std::string &name, const std::vector<Extent> &extents,
                             std::map<uint64_t, SpaceMap> &used, std::vector<std::string> &problems) const {
    for (const Extent &extent : extents) {
        if (!space_.Contains(extent)) {
            problems.push_back("file \"" + name + "\" has an extent outside the data area");
            return;
        }
        const uint64_t end = extent.start + extent.units;
        for (uint64_t at = extent.start; at < end;) {
            const uint64_t group = GroupOf(at), piece_end = std::min(end, (group + 1) * GROUP_UNITS);
            SpaceMap &map = used.try_emplace(group, group, area_).first->second;
            const auto first = static_cast<uint32_t>(at % GROUP_UNITS);
            const auto units = static_cast<uint32_t>(piece_end - at);
            if (!map.AllFree(first, units)) {
                problems.push_back("file \"" + name + "\" shares space with another in allocation units " +
                                   std::to_string(at) + " to " + std::to_string(piece_end));
            }
            map.Set(first, units, true);
            at = piece_end;
        }
    }
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
