#include "volume/damage/catalog.hpp"

#include "common/make_room.hpp"
#include "volume/format/extent_list.hpp"

#include <algorithm>
#include <set>

namespace rawduck {

Catalog::Catalog(uint32_t lba_size, AllocationUnit data_start, AllocationUnit data_end)
    : lba_size_(lba_size), data_start_(Index(data_start)), data_end_(Index(data_end)) {}

bool Catalog::IsInDataArea(const Extent &extent) const {
    return extent.units > 0 && extent.start >= data_start_ && extent.start < data_end_ &&
           extent.units <= data_end_ - extent.start;
}

bool Catalog::Apply(const Item &item, std::string &problem) {
    if (item.type == ItemType::DATA_CHECKSUM) {
        return true;
    }
    if (item.type == ItemType::CREATE) {
        return ApplyCreate(item, problem);
    }
    if (item.type == ItemType::CLONE) {
        return ApplyClone(item, problem);
    }
    auto found = entries_.find(item.file_id);
    if (found == entries_.end()) {
        problem = "file " + std::to_string(item.file_id) + " is changed but does not exist";
        return false;
    }
    CatalogEntry &entry = found->second;
    bool applied = false;
    if (entry.snapshot && item.type != ItemType::MOVE && item.type != ItemType::REMOVE) {
        problem = "snapshot \"" + entry.name + "\" is changed";
        return false;
    }
    switch (item.type) {
    case ItemType::EXTENTS:
        applied = ApplyExtents(entry, item, problem);
        break;
    case ItemType::REMAP:
        applied = ApplyRemap(entry, item, problem);
        break;
    case ItemType::SIZE:
    case ItemType::TRUNCATE:
        applied = ApplySize(entry, item, problem);
        break;
    case ItemType::HOLES:
        entry.holes = std::vector<Hole>(item.holes);
        applied = true;
        break;
    case ItemType::MOVE:
        applied = ApplyMove(entry, item, problem);
        break;
    case ItemType::REMOVE:
        entries_.erase(found);
        return true;
    default:
        problem = "unknown item type " + std::to_string(static_cast<int>(item.type));
        return false;
    }
    return applied;
}

bool Catalog::ApplyCreate(const Item &item, std::string &problem) {
    const auto kind = static_cast<FileKind>(item.kind);
    if (!IsStored(kind) || item.name.empty() || entries_.count(item.file_id) != 0) {
        problem = "file " + std::to_string(item.file_id) + " (\"" + item.name + "\") cannot be created";
        return false;
    }
    CatalogEntry entry;
    entry.name = item.name;
    entry.kind = kind;
    entry.created_us = entry.modified_us = item.time_us;
    entries_.emplace(item.file_id, std::move(entry));
    return true;
}

bool Catalog::ApplyClone(const Item &item, std::string &problem) {
    const auto source = entries_.find(item.source_id);
    if (source == entries_.end() || item.name.empty() || entries_.count(item.file_id) != 0 ||
        source->second.kind == FileKind::DIRECTORY || item.kind > static_cast<uint8_t>(CloneKind::SNAPSHOT)) {
        problem = "file " + std::to_string(item.source_id) + " cannot be cloned as \"" + item.name + "\"";
        return false;
    }
    CatalogEntry entry = source->second;
    entry.name = item.name;
    entry.snapshot = item.kind == static_cast<uint8_t>(CloneKind::SNAPSHOT);
    entry.created_us = item.time_us;
    entries_.emplace(item.file_id, std::move(entry));
    shares_ = true;
    return true;
}

bool Catalog::ApplyExtents(CatalogEntry &entry, const Item &item, std::string &problem) {
    uint64_t next = entry.Units();
    for (const Extent &extent : item.extents) {
        if (extent.file_unit != next || !IsInDataArea(extent)) {
            problem = "file \"" + entry.name + "\" gets an extent that does not continue it or lies outside";
            return false;
        }
        next += extent.units;
    }
    MakeRoom(entry.extents, item.extents.size());
    for (const Extent &extent : item.extents) {
        AppendExtent(entry.extents, extent);
    }
    return true;
}

bool Catalog::ApplyRemap(CatalogEntry &entry, const Item &item, std::string &problem) {
    uint64_t end = 0;
    for (const Extent &moved : item.extents) {
        if (!IsInDataArea(moved) || moved.file_unit < end || moved.units > entry.Units() ||
            moved.file_unit > entry.Units() - moved.units) {
            problem = "file \"" + entry.name + "\" gets a range that lies outside or is out of order";
            return false;
        }
        end = moved.file_unit + moved.units;
    }
    entry.extents = RemappedExtents(entry.extents, item.extents);
    return true;
}

bool Catalog::ApplySize(CatalogEntry &entry, const Item &item, std::string &problem) {
    const uint64_t units = AlignUp(item.size, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
    if (item.size > entry.Units() * ALLOCATION_UNIT_BYTES || item.tail.size() != item.size % lba_size_) {
        problem = "file \"" + entry.name + "\" gets a size of " + std::to_string(item.size) +
                  " bytes that its extents or its tail do not cover";
        return false;
    }
    if (item.type == ItemType::SIZE && units < entry.Units()) {
        problem = "file \"" + entry.name + "\" shrinks without being truncated";
        return false;
    }
    std::string tail = item.tail; // which may throw, so it comes first
    CutExtents(entry.extents, units);
    CutHoles(entry.holes, item.size);
    entry.size = item.size;
    entry.tail.swap(tail);
    entry.modified_us = item.time_us;
    return true;
}

bool Catalog::ApplyMove(CatalogEntry &entry, const Item &item, std::string &problem) {
    if (item.name.empty() || item.replaced_id == item.file_id) {
        problem = "file \"" + entry.name + "\" is moved to an impossible name";
        return false;
    }
    std::string name = item.name; // which may throw, so it comes first
    if (item.replaced_id != 0) {
        auto replaced = entries_.find(item.replaced_id);
        if (replaced == entries_.end() || replaced->second.name != item.name) {
            problem = "file \"" + entry.name + "\" replaces a file that is not there";
            return false;
        }
        entries_.erase(replaced);
    }
    entry.name.swap(name);
    return true;
}

std::vector<std::string> Catalog::FindProblems() const {
    std::vector<std::string> problems;
    std::set<std::string> names;
    std::vector<std::pair<Extent, const CatalogEntry *>> used;
    for (const auto &[id, entry] : entries_) {
        if (!names.insert(entry.name).second) {
            problems.push_back("two files are called \"" + entry.name + "\"");
        }
        if (entry.Units() != AlignUp(entry.size, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES) {
            problems.push_back("file \"" + entry.name + "\": its extents do not match its size");
        }
        for (const Extent &extent : entry.extents) {
            used.emplace_back(extent, &entry);
        }
        if (!AreHolesSound(entry.holes, entry.size)) {
            problems.push_back("file \"" + entry.name + "\": its list of holes makes no sense");
        }
    }
    std::sort(used.begin(), used.end(),
              [](const auto &a, const auto &b) { return a.first.start < b.first.start; });
    for (size_t i = 1; i < used.size() && !shares_; i++) {
        const Extent &previous = used[i - 1].first;
        if (previous.start + previous.units > used[i].first.start) {
            problems.push_back("files \"" + used[i - 1].second->name + "\" and \"" + used[i].second->name +
                               "\" share the allocation unit " + std::to_string(used[i].first.start));
        }
    }
    return problems;
}

} // namespace rawduck
