#include "volume/catalog/catalog_tree.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/tree/number_key.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

std::string TailKey(uint64_t file_id, uint64_t piece) {
    return std::string(NumberKey(file_id)) + static_cast<char>(piece);
}

uint64_t TailPieces(uint64_t bytes) {
    return DivideUp(bytes, TAIL_PIECE_BYTES);
}

bool IsName(const std::string &name) {
    return !name.empty() && name.size() <= ENTRY_NAME_BYTES_MAX;
}

} // namespace

CatalogTree::CatalogTree(PageStore &store, const CatalogRoots &roots, uint32_t lba_size,
                         const SpaceMap::Area &area)
    : store_(store), lba_size_(lba_size), area_(area), names_(store, roots.names), files_(store, roots.files),
      tails_(store, roots.tails), space_(store, roots.space_maps, roots.space_summaries, area),
      references_(store, roots.references), reference_changes_(references_) {}

CatalogRoots CatalogTree::Roots() const {
    return {names_.Root(),     files_.Root(),          tails_.Root(),
            space_.MapsRoot(), space_.SummariesRoot(), references_.Root()};
}

void CatalogTree::Grow(uint64_t data_end) {
    RAWDUCK_INVARIANT(steps_done_ == steps_.size(), "no item is under way");
    space_.Grow(data_end);
    area_.end = data_end;
}

// Everything that can be wrong with an item, and everything that has to be read, comes before the first step.
bool CatalogTree::Apply(const Item &item, std::string &problem) {
    if (steps_done_ == steps_.size()) {
        ForgetPlan();
        bool sound = false;
        try {
            sound = Plan(item, problem);
            PlanReferences();
        } catch (...) {
            ForgetPlan();
            throw;
        }
        if (!sound) {
            ForgetPlan();
            return false;
        }
    }
    RunSteps();
    return true;
}

void CatalogTree::RunSteps() {
    for (; steps_done_ < steps_.size(); steps_done_++) {
        steps_[steps_done_]();
    }
    ForgetPlan();
}

void CatalogTree::ForgetPlan() {
    steps_.clear();
    steps_done_ = 0;
    changing_.clear();
    reference_changes_.Clear();
    copied_pages_.clear();
}

bool CatalogTree::Plan(const Item &item, std::string &problem) {
    if (item.type == ItemType::DATA_CHECKSUM) {
        return true;
    }
    if (item.type == ItemType::CREATE) {
        return PlanCreate(item, problem);
    }
    const uint64_t id = item.type == ItemType::CLONE ? item.source_id : item.file_id;
    const SharedEntry entry = TakeEntry(id);
    if (!entry) {
        problem = "file " + std::to_string(id) + " is " +
                  (item.type == ItemType::CLONE ? "cloned" : "changed") + " but does not exist";
        return false;
    }
    const bool keeps_contents =
        item.type == ItemType::MOVE || item.type == ItemType::CLONE || item.type == ItemType::REMOVE;
    if (entry->snapshot && !keeps_contents) {
        problem = "snapshot \"" + entry->name + "\" is changed";
        return false;
    }
    switch (item.type) {
    case ItemType::EXTENTS:
        return PlanExtents(entry, item, problem);
    case ItemType::REMAP:
        return PlanRemap(entry, item, problem);
    case ItemType::SIZE:
    case ItemType::TRUNCATE:
        return PlanSize(entry, item, problem);
    case ItemType::HOLES:
        OwnHoles(entry);
        steps_.emplace_back([this, entry, holes = item.holes] { ListsOf(*entry).SetHoles(holes); });
        PlanStore(item.file_id, entry);
        return true;
    case ItemType::MOVE:
        return PlanMove(entry, item, problem);
    case ItemType::CLONE:
        return PlanClone(entry, item, problem);
    case ItemType::REMOVE:
        PlanRemove(item.file_id, entry);
        return true;
    default:
        problem = "unknown item type " + std::to_string(static_cast<int>(item.type));
        return false;
    }
}

CatalogTree::SharedEntry CatalogTree::TakeEntry(uint64_t file_id) {
    std::optional<FileEntry> found = Find(file_id);
    if (!found) {
        return nullptr;
    }
    const auto entry = std::make_shared<FileEntry>(std::move(*found));
    changing_[file_id] = entry;
    return entry;
}

bool CatalogTree::PlanCreate(const Item &item, std::string &problem) {
    if (!IsStored(static_cast<FileKind>(item.kind)) || !IsName(item.name) || Find(item.file_id) ||
        IdOf(item.name)) {
        problem = "file " + std::to_string(item.file_id) + " (\"" + item.name + "\") cannot be created";
        return false;
    }
    const auto entry = std::make_shared<FileEntry>();
    entry->name = item.name;
    entry->kind = static_cast<FileKind>(item.kind);
    entry->created_us = entry->modified_us = item.time_us;
    steps_.emplace_back([this, entry, file_id = item.file_id] { names_.Put(entry->name, BytesOf(file_id)); });
    PlanStore(item.file_id, entry);
    return true;
}

//! Whether nothing has this space, and no two of the extents share any.
bool CatalogTree::IsFreeSpace(std::vector<Extent> extents) const {
    std::sort(extents.begin(), extents.end(),
              [](const Extent &a, const Extent &b) { return a.start < b.start; });
    for (size_t i = 0; i < extents.size(); i++) {
        const bool apart = i == 0 || extents[i - 1].start + extents[i - 1].units <= extents[i].start;
        if (!space_.Contains(extents[i]) || !apart || !space_.AllFree(extents[i])) {
            return false;
        }
    }
    return true;
}

// The first step, so that others find there what they rely on.
void CatalogTree::PlanReferences() {
    std::vector<ReferencedUnits> changes = reference_changes_.Take();
    if (!changes.empty()) {
        steps_.emplace(steps_.begin(), [this, changes = std::move(changes)] {
            for (const ReferencedUnits &change : changes) {
                references_.Set(change);
            }
        });
    }
}

// What nobody else refers to is free.
void CatalogTree::PlanRelease(const std::vector<Extent> &extents) {
    std::vector<Extent> gone;
    for (const Extent &extent : extents) {
        reference_changes_.Remove(extent.start, extent.units, gone);
    }
    PlanSpace(std::move(gone), false);
}

void CatalogTree::PlanSpace(std::vector<Extent> extents, bool used) {
    if (!used && freed_) {
        freed_->insert(freed_->end(), extents.begin(), extents.end());
    }
    for (const Extent &extent : extents) {
        steps_.emplace_back([this, extent, used] { space_.Set(extent, used); });
    }
}

// Last for an item: until then readers find the entry in changing_.
void CatalogTree::PlanStore(uint64_t file_id, const SharedEntry &entry) {
    steps_.emplace_back([this, file_id, entry] { files_.Put(NumberKey(file_id), entry->Encode()); });
}

bool CatalogTree::PlanExtents(const SharedEntry &entry, const Item &item, std::string &problem) {
    uint64_t next = entry->units;
    for (const Extent &extent : item.extents) {
        if (extent.file_unit != next || extent.units == 0) {
            problem = "file \"" + entry->name + "\" gets an extent that does not continue it";
            return false;
        }
        next += extent.units;
    }
    if (!IsFreeSpace(item.extents)) {
        problem = "file \"" + entry->name + "\" gets an extent that lies outside or is not free";
        return false;
    }
    PlanSpace(item.extents, true);
    OwnExtents(entry, entry->units, std::nullopt);
    for (const Extent &extent : item.extents) {
        steps_.emplace_back([this, entry, extent] { ListsOf(*entry).Append(extent); });
    }
    steps_.emplace_back([entry, next] { entry->units = next; });
    PlanStore(item.file_id, entry);
    return true;
}

bool CatalogTree::PlanRemap(const SharedEntry &entry, const Item &item, std::string &problem) {
    uint64_t end = 0;
    std::vector<Extent> old;
    for (const Extent &moved : item.extents) {
        if (moved.units == 0 || moved.file_unit < end || moved.units > entry->units ||
            moved.file_unit > entry->units - moved.units) {
            problem = "file \"" + entry->name + "\" gets a range that lies outside or is out of order";
            return false;
        }
        end = moved.file_unit + moved.units;
        const std::vector<Extent> pieces = Extents(*entry, moved.file_unit, end);
        old.insert(old.end(), pieces.begin(), pieces.end());
    }
    if (!IsFreeSpace(item.extents)) {
        problem = "file \"" + entry->name + "\" gets a range that lies outside or is not free";
        return false;
    }
    PlanSpace(item.extents, true);
    for (const Extent &moved : item.extents) {
        OwnExtents(entry, moved.file_unit, moved.file_unit + moved.units);
    }
    steps_.emplace_back([this, entry, moved = item.extents] { ListsOf(*entry).Remap(moved); });
    PlanRelease(old);
    PlanStore(item.file_id, entry);
    return true;
}

bool CatalogTree::PlanSize(const SharedEntry &entry, const Item &item, std::string &problem) {
    const uint64_t units = AlignUp(item.size, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
    if (item.size > entry->units * ALLOCATION_UNIT_BYTES || item.tail.size() != item.size % lba_size_) {
        problem = "file \"" + entry->name + "\" gets a size of " + std::to_string(item.size) +
                  " bytes that its extents or its tail do not cover";
        return false;
    }
    if (item.type == ItemType::SIZE && units < entry->units) {
        problem = "file \"" + entry->name + "\" shrinks without being truncated";
        return false;
    }
    if (units < entry->units) {
        OwnExtents(entry, units, std::nullopt);
        PlanRelease(Extents(*entry, units, entry->units));
        steps_.emplace_back([this, entry, units] {
            ListsOf(*entry).CutUnits(units);
            entry->units = units;
        });
    }
    if (ListsOf(*entry).HolesReachBeyond(item.size)) {
        OwnHoles(entry);
    }
    steps_.emplace_back([this, entry, item] {
        ListsOf(*entry).CutHoles(item.size);
        PutTail(item.file_id, item.tail, entry->tail_bytes);
        entry->size = item.size;
        entry->tail_bytes = static_cast<uint32_t>(item.tail.size());
        entry->modified_us = item.time_us;
    });
    PlanStore(item.file_id, entry);
    return true;
}

bool CatalogTree::PlanMove(const SharedEntry &entry, const Item &item, std::string &problem) {
    if (!IsName(item.name) || item.replaced_id == item.file_id) {
        problem = "file \"" + entry->name + "\" is moved to an impossible name";
        return false;
    }
    const std::optional<uint64_t> there = IdOf(item.name);
    if (there.value_or(0) != item.replaced_id) {
        problem = "file \"" + entry->name + "\" replaces a file that is not there, or not one that is";
        return false;
    }
    if (item.replaced_id != 0) {
        PlanRemove(item.replaced_id, TakeEntry(item.replaced_id));
    }
    steps_.emplace_back([this, entry, item, old_name = entry->name] {
        names_.Put(item.name, BytesOf(item.file_id));
        names_.Erase(old_name);
        entry->name = item.name;
    });
    PlanStore(item.file_id, entry);
    return true;
}

bool CatalogTree::PlanClone(const SharedEntry &source, const Item &item, std::string &problem) {
    if (!IsName(item.name) || Find(item.file_id) || IdOf(item.name) ||
        item.kind > static_cast<uint8_t>(CloneKind::SNAPSHOT) || source->kind == FileKind::DIRECTORY) {
        problem = "file \"" + source->name + "\" cannot be cloned as \"" + item.name + "\"";
        return false;
    }
    const auto entry = std::make_shared<FileEntry>(*source);
    entry->name = item.name;
    entry->snapshot = item.kind == static_cast<uint8_t>(CloneKind::SNAPSHOT);
    entry->created_us = item.time_us;
    for (const Extent &extent : entry->extents) {
        reference_changes_.Add(extent.start, extent.units);
    }
    ShareTree(entry->extents_root);
    ShareTree(entry->holes_root);
    steps_.emplace_back([this, entry, file_id = item.file_id, tail = Tail(item.source_id, *source)] {
        names_.Put(entry->name, BytesOf(file_id));
        PutTail(file_id, tail, 0);
    });
    PlanStore(item.file_id, entry);
    return true;
}

// The entry goes first: nothing that it refers to is read any more.
void CatalogTree::PlanRemove(uint64_t file_id, const SharedEntry &entry) {
    std::vector<Extent> gone;
    std::vector<PagePointer> pages = LeaveTrees(*entry, gone);
    steps_.emplace_back([this, file_id, entry] {
        names_.Erase(entry->name);
        files_.Erase(NumberKey(file_id));
        PutTail(file_id, "", entry->tail_bytes);
    });
    steps_.emplace_back([this, pages = std::move(pages)] {
        for (const PagePointer &page : pages) {
            store_.Drop(page); // which throws nothing: all of them, or none
        }
    });
    PlanSpace(std::move(gone), false);
}

void CatalogTree::PutTail(uint64_t file_id, std::string_view tail, uint32_t old_bytes) {
    const uint64_t pieces = TailPieces(tail.size());
    for (uint64_t piece = 0; piece < pieces; piece++) {
        tails_.Put(TailKey(file_id, piece), tail.substr(piece * TAIL_PIECE_BYTES, TAIL_PIECE_BYTES));
    }
    for (uint64_t piece = pieces; piece < TailPieces(old_bytes); piece++) {
        tails_.Erase(TailKey(file_id, piece));
    }
}

uint64_t CatalogTree::IdIn(std::string_view value) {
    uint64_t file_id = 0;
    memcpy(&file_id, value.data(), std::min(value.size(), sizeof file_id));
    return file_id;
}

std::optional<uint64_t> CatalogTree::IdOf(std::string_view name) const {
    const auto value = names_.Find(name);
    return value ? std::optional<uint64_t>(IdIn(*value)) : std::nullopt;
}

void CatalogTree::ScanNames(std::string_view from,
                            const std::function<bool(std::string_view name, uint64_t file_id)> &visit) const {
    names_.Scan(from,
                [&](std::string_view name, std::string_view value) { return visit(name, IdIn(value)); });
}

std::optional<FileEntry> CatalogTree::Find(uint64_t file_id) const {
    const auto changing = changing_.find(file_id);
    if (changing != changing_.end()) {
        return *changing->second;
    }
    const auto bytes = files_.Find(NumberKey(file_id));
    return bytes ? std::optional<FileEntry>(FileEntry::Decode(file_id, *bytes)) : std::nullopt;
}

std::string CatalogTree::Tail(uint64_t file_id, const FileEntry &entry) const {
    std::string tail;
    for (uint64_t piece = 0; piece < TailPieces(entry.tail_bytes); piece++) {
        tail += tails_.Find(TailKey(file_id, piece)).value_or("");
    }
    if (tail.size() != entry.tail_bytes) {
        throw Error(ErrorCode::CORRUPT, "the last bytes of \"" + entry.name +
                                            "\" are missing in the metadata; `rawduck check` tells more");
    }
    return tail;
}

std::vector<Extent> CatalogTree::Extents(const FileEntry &entry, uint64_t from, uint64_t to) const {
    return FileLists(store_, const_cast<FileEntry &>(entry)).Extents(from, to);
}

std::vector<Hole> CatalogTree::Holes(const FileEntry &entry) const {
    return FileLists(store_, const_cast<FileEntry &>(entry)).Holes();
}

CatalogEntry CatalogTree::Load(uint64_t file_id) const {
    const std::optional<FileEntry> found = Find(file_id);
    if (!found) {
        throw Error(ErrorCode::CORRUPT, "file " + std::to_string(file_id) +
                                            " has a name and nothing else; `rawduck check` tells more");
    }
    CatalogEntry entry = found->WithoutContents();
    entry.tail = Tail(file_id, *found);
    entry.extents = Extents(*found, 0, found->units);
    entry.holes = Holes(*found);
    return entry;
}

uint64_t CatalogTree::LastId() const {
    const auto last = files_.FindAtOrBefore(NumberKey(UINT64_MAX));
    return last && last->key.size() == NumberKey::BYTES ? NumberKey::NumberOf(last->key) : 0;
}

} // namespace rawduck
