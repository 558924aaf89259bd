#include "common/error.hpp"
#include "volume/catalog/catalog_tree.hpp"
#include "volume/tree/number_key.hpp"

#include <algorithm>
#include <iterator>

namespace rawduck {

namespace {

//! All names, to be found by the file that has them.
class NamesById {
  public:
    void Add(std::string_view name, uint64_t id) {
        places_.push_back({id, bytes_.size(), name.size()});
        bytes_ += name;
    }
    void Sort() {
        std::sort(places_.begin(), places_.end(), [](const Place &a, const Place &b) { return a.id < b.id; });
    }
    //! After Sort.
    bool Has(uint64_t id, std::string_view name) const {
        auto place = std::lower_bound(places_.begin(), places_.end(), id,
                                      [](const Place &at, uint64_t wanted) { return at.id < wanted; });
        for (; place != places_.end() && place->id == id; ++place) {
            if (std::string_view(bytes_).substr(place->begin, place->length) == name) {
                return true;
            }
        }
        return false;
    }
    size_t Count() const { return places_.size(); }

  private:
    struct Place {
        uint64_t id;
        size_t begin, length; //!< of the name, among the bytes
    };
    std::string bytes_;
    std::vector<Place> places_;
};

void Add(std::vector<std::string> &problems, std::vector<std::string> more) {
    problems.insert(problems.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
}

} // namespace

//! All references, counted anew.
struct CatalogTree::Recount {
    Recount(const std::function<void(const PagePointer &)> &visit_page_p, const VisitFile &visit_file_p)
        : visit_page(visit_page_p), visit_file(visit_file_p) {}

    //! Of what was seen to be in use.
    SpaceMap &MapOf(uint64_t group, const SpaceMap::Area &area) {
        if (!last_map || last_group != group) { // most extents lie near the one before
            last_map = &used.try_emplace(group, group, area).first->second;
            last_group = group;
        }
        return *last_map;
    }

    const std::function<void(const PagePointer &)> &visit_page;
    const VisitFile &visit_file;
    NamesById names;
    std::set<uint64_t> pages;          //!< of the trees of files
    std::map<uint64_t, SpaceMap> used; //!< by group
    SpaceMap *last_map = nullptr;
    uint64_t last_group = 0;
    UnitCounts shared; //!< how many refer to it, where it is more than one
    std::vector<std::string> problems;
};

std::vector<std::string> CatalogTree::FindProblems(const std::function<void(const PagePointer &)> &visit_page,
                                                   const VisitFile &visit_file) const {
    Recount recount(visit_page, visit_file);
    std::vector<std::string> &problems = recount.problems;
    const Tree::LookBelow always = [&](const PagePointer &page) {
        visit_page(page);
        return true;
    };
    Add(problems, names_.FindProblems(always, [&](std::string_view name, std::string_view value) {
        recount.names.Add(name, IdIn(value));
        return true;
    }));
    recount.names.Sort();
    Add(problems, tails_.FindProblems(visit_page));
    Add(problems, space_.FindProblems(visit_page));
    Add(problems, references_.FindProblems(visit_page));
    if (!problems.empty()) { // what cannot be read cannot be compared
        Add(problems, files_.FindProblems(visit_page));
        return problems;
    }
    size_t files = 0;
    std::vector<std::string> unreadable =
        files_.FindProblems(always, [&](std::string_view key, std::string_view bytes) {
            if (key.size() != NumberKey::BYTES) {
                problems.emplace_back("the tree of files holds something else");
                return true;
            }
            FindFileProblems(NumberKey::NumberOf(key), bytes, recount);
            files++;
            return true;
        });
    if (!unreadable.empty()) {
        return unreadable;
    }
    // Each file is found under its name; so if there are as many names as files, there is no other name.
    if (recount.names.Count() != files) {
        problems.push_back(std::to_string(recount.names.Count()) + " names belong to " +
                           std::to_string(files) + " files");
    }
    CompareSpace(recount);
    CompareReferences(recount);
    return problems;
}

void CatalogTree::CompareSpace(Recount &recount) const {
    const uint64_t groups = area_.Groups();
    for (uint64_t group = 0; group < groups; group++) {
        const SpaceMap map = space_.Map(group);
        const auto counted = recount.used.find(group);
        if (counted == recount.used.end() ? !map.Empty() : !(map == counted->second)) {
            recount.problems.push_back("what is in use in space group " + std::to_string(group) +
                                       " is not what files have there");
        }
    }
}

std::vector<std::string> CatalogTree::FindProblemsIn(uint64_t file_id, FileEntry &entry,
                                                     const Tree::LookBelow &visit_page,
                                                     const std::function<void(const Extent &)> &visit_extent,
                                                     CatalogEntry &file) const {
    FileLists::Contents contents;
    std::vector<std::string> problems =
        FileLists(store_, entry).FindProblems(visit_page, visit_extent, contents);
    if (!problems.empty()) {
        return problems;
    }
    if (entry.tail_bytes != entry.size % lba_size_) {
        problems.push_back("file \"" + entry.name + "\": its last bytes do not match its size");
    }
    file = entry.WithoutContents();
    file.tail = Tail(file_id, entry); // throws when it is not whole
    file.extents = std::move(contents.extents);
    file.holes = std::move(contents.holes);
    return problems;
}

void CatalogTree::FindFileProblems(uint64_t file_id, std::string_view bytes, Recount &recount) const {
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
        CatalogEntry file;
        std::vector<std::string> found = FindProblemsIn(
            file_id, entry, visit_page,
            [&](const Extent &extent) { CountExtent(entry.name, extent, recount); }, file);
        if (!recount.names.Has(file_id, entry.name)) {
            found.push_back("file \"" + entry.name + "\" cannot be found under its name");
        }
        if (found.empty() && recount.visit_file) {
            recount.visit_file(file_id, std::move(file));
        }
        Add(recount.problems, std::move(found));
    } catch (const Error &error) {
        recount.problems.emplace_back(error.what());
    }
}

std::vector<std::string> CatalogTree::FindProblemsOf(uint64_t file_id, CatalogEntry &file) const {
    std::optional<FileEntry> entry = Find(file_id);
    if (!entry) {
        return {"file " + std::to_string(file_id) + " has a name and nothing else"};
    }
    std::vector<std::string> problems = FindProblemsIn(
        file_id, *entry, [](const PagePointer &) { return true; }, [](const Extent &) {}, file);
    if (IdOf(entry->name).value_or(0) != file_id) {
        problems.push_back("file \"" + entry->name + "\" cannot be found under its name");
    }
    return problems;
}

void CatalogTree::CountExtent(const std::string &name, const Extent &extent, Recount &recount) const {
    if (!space_.Contains(extent)) {
        recount.problems.push_back("file \"" + name + "\" has an extent outside the data area");
        return;
    }
    const uint64_t end = extent.start + extent.units;
    for (uint64_t at = extent.start; at < end;) {
        const uint64_t group = GroupOf(at), piece_end = std::min(end, (group + 1) * GROUP_UNITS);
        SpaceMap &map = recount.MapOf(group, area_);
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

} // namespace rawduck
