#include "volume/damage/overwritten.hpp"

#include "volume/tree/unit_counts.hpp"

#include <algorithm>
#include <set>

namespace rawduck {

namespace {

class Overwritten {
  public:
    // What a file keeps that nothing is said of is not given to others, whoever had it, too.
    Overwritten(const VolumeFiles &files, const std::vector<Item> &lost) : files_(files) {
        std::set<uint64_t> changed;
        for (const Item &item : lost) {
            changed.insert({item.file_id, item.replaced_id});
        }
        for (const auto &[id, entry] : files.entries) {
            for (const Extent &extent : entry.extents) {
                if (changed.count(id) == 0) {
                    kept_.Set(extent.start, extent.units, 1);
                }
            }
        }
    }

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
            kept_.ForEach(extent.start + skipped, extent.units - skipped,
                          [&](const UnitCounts::Piece &piece) {
                              if (piece.count == 0) {
                                  extents_.push_back({extent.file_unit + (piece.start - extent.start),
                                                      piece.start, piece.units});
                              }
                          });
        }
    }

    const VolumeFiles &files_;
    UnitCounts kept_;
    std::vector<Extent> extents_;
};

bool Covers(const std::vector<Extent> &extents, uint64_t unit) {
    return std::any_of(extents.begin(), extents.end(), [unit](const Extent &extent) {
        return unit >= extent.start && unit - extent.start < extent.units;
    });
}

} // namespace

std::vector<Extent> FindOverwritten(const VolumeFiles &files, const std::vector<Item> &lost) {
    if (lost.empty()) {
        return {};
    }
    Overwritten overwritten(files, lost);
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
