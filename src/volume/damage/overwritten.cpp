#include "volume/damage/overwritten.hpp"

#include <algorithm>

namespace rawduck {

namespace {

class Overwritten {
  public:
    explicit Overwritten(const VolumeFiles &files) : files_(files) {}

    void Add(const Item &item) {
        extents_.insert(extents_.end(), item.extents.begin(), item.extents.end());
        AddCut(item.replaced_id, 0);
        if (item.type == ItemType::REMOVE) {
            AddCut(item.file_id, 0);
        } else if (item.type == ItemType::TRUNCATE) {
            AddCut(item.file_id, item.size);
        } else if (item.type == ItemType::SIZE) {
            // A smaller one: it was cut before, to a length that is not known.
            const auto found = files_.entries.find(item.file_id);
            if (found != files_.entries.end() && item.size < found->second.size) {
                AddCut(item.file_id, 0);
            }
        }
    }

    std::vector<Extent> Take() { return std::move(extents_); }

  private:
    //! What a file had from `size` on.
    void AddCut(uint64_t file_id, uint64_t size) {
        const auto found = files_.entries.find(file_id);
        if (found == files_.entries.end()) {
            return;
        }
        uint64_t kept = size / ALLOCATION_UNIT_BYTES;
        for (const Extent &extent : found->second.extents) {
            const uint64_t skipped = std::min(kept, extent.units);
            kept -= skipped;
            if (skipped < extent.units) {
                extents_.push_back(
                    {extent.file_unit + skipped, extent.start + skipped, extent.units - skipped});
            }
        }
    }

    const VolumeFiles &files_;
    std::vector<Extent> extents_;
};

bool Covers(const std::vector<Extent> &extents, uint64_t unit) {
    return std::any_of(extents.begin(), extents.end(), [unit](const Extent &extent) {
        return unit >= extent.start && unit - extent.start < extent.units;
    });
}

} // namespace

std::vector<Extent> FindOverwritten(const VolumeFiles &files, const std::vector<Item> &lost) {
    Overwritten overwritten(files);
    for (const Item &item : lost) {
        overwritten.Add(item);
    }
    return overwritten.Take();
}

std::string FileAt(const VolumeFiles &files, const std::vector<Item> &items, uint64_t device_offset) {
    const uint64_t unit = device_offset / ALLOCATION_UNIT_BYTES;
    const auto name_of = [&](uint64_t id) {
        const auto found = files.entries.find(id);
        std::string name = found == files.entries.end() ? "" : found->second.name;
        for (const Item &item : items) {
            const bool names = item.type == ItemType::CREATE || item.type == ItemType::MOVE;
            name = names && item.file_id == id ? item.name : name;
        }
        return "file " + name;
    };
    for (const Item &item : items) {
        if (Covers(item.extents, unit)) {
            return name_of(item.file_id);
        }
    }
    for (const auto &[id, entry] : files.entries) {
        if (Covers(entry.extents, unit)) {
            return name_of(id);
        }
    }
    return "a removed file";
}

} // namespace rawduck
