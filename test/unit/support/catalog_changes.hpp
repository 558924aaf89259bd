//! Random records as files make them, with the space that they take and free, for tests of metadata.
#pragma once

#include "volume/catalog/catalog_tree.hpp"
#include "volume/catalog/free_space.hpp"
#include "volume/damage/catalog.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace rawduck {

//! All that a catalog says of a file, to be compared.
inline std::string TextOf(uint64_t id, const CatalogEntry &entry) {
    std::string text = std::to_string(id) + " " + entry.name + " " + FileKindName(entry.kind) + " " +
                       std::to_string(entry.size) + " " + std::to_string(entry.created_us) + " " +
                       std::to_string(entry.modified_us) + (entry.snapshot ? " snapshot " : " ") + entry.tail;
    for (const Extent &extent : entry.extents) {
        text += " " + std::to_string(extent.start) + "+" + std::to_string(extent.units);
    }
    for (const Hole &hole : entry.holes) {
        text += " hole " + std::to_string(hole.offset) + "+" + std::to_string(hole.length);
    }
    return text + "\n";
}

inline std::string TextOf(const Catalog &catalog) {
    std::string text;
    for (const auto &[id, entry] : catalog.Entries()) {
        text += TextOf(id, entry);
    }
    return text;
}

inline std::string TextOf(const CatalogTree &catalog) {
    std::map<uint64_t, std::string> texts;
    catalog.ScanNames("", [&](std::string_view name, uint64_t id) {
        const auto found = catalog.Find(id);
        EXPECT_TRUE(found && found->name == name);
        CatalogEntry entry;
        entry.name = name;
        entry.kind = found->kind;
        entry.snapshot = found->snapshot;
        entry.size = found->size;
        entry.created_us = found->created_us;
        entry.modified_us = found->modified_us;
        entry.tail = catalog.Tail(id, *found);
        entry.extents = catalog.Extents(*found, 0, UINT64_MAX);
        entry.holes = catalog.Holes(*found);
        texts[id] = TextOf(id, entry);
        return true;
    });
    std::string all;
    for (const auto &[id, text] : texts) {
        all += text;
    }
    return all;
}

//! Files are those of a Catalog, which each record is applied to by Next.
class CatalogChanges {
  public:
    CatalogChanges(uint32_t lba_size, const SpaceMap::Area &area, uint64_t seed)
        : model(lba_size, AllocationUnit{area.start}, AllocationUnit{area.end}), random(seed),
          lba_size_(lba_size) {}

    struct Record {
        std::vector<Item> items;
        std::vector<Extent> freed; //!< once the record is durable
    };
    //! Takes from `space` what the record needs.
    Record Next(FreeSpace &space) {
        record_ = Record();
        const uint64_t kind = random() % (clones ? 24 : 20);
        const bool full = space.FreeUnits() < kept_units;
        if (model.Entries().empty() || (kind < 3 && !full && model.Entries().size() < files_max)) {
            Create(space);
        } else if (full || kind == 3) {
            Remove(Any());
        } else if (kind >= 20) {
            kind < 23 && model.Entries().size() < files_max ? Clone() : Remove(Any());
        } else if (kind == 6 || !AnyWritable()) {
            Move();
        } else if (kind == 4) {
            Truncate(*AnyWritable());
        } else if (kind == 5) {
            SetHoles(*AnyWritable());
        } else if (kind < 12) {
            Remap(*AnyWritable(), space);
        } else {
            Grow(*AnyWritable(), space);
        }
        return record_;
    }
    //! Allocation units that files have, each once.
    uint64_t UsedUnits() const {
        uint64_t units = 0;
        HeldBeside(0).ForAll([&](const UnitCounts::Piece &piece) { units += piece.units; });
        return units;
    }

    Catalog model;
    std::mt19937_64 random;
    uint64_t files_max = 40, next_id = 1;
    uint64_t kept_units = 200; //!< with less, files are removed
    bool clones = true;

  private:
    using Entry = std::pair<const uint64_t, CatalogEntry>;

    void Add(Item item) {
        std::string problem;
        EXPECT_TRUE(model.Apply(item, problem)) << problem;
        record_.items.push_back(std::move(item));
    }
    const Entry &Any() {
        return *std::next(model.Entries().begin(), static_cast<long>(random() % model.Entries().size()));
    }
    //! Null when there are only snapshots.
    const Entry *AnyWritable() {
        std::vector<const Entry *> writable;
        for (const Entry &entry : model.Entries()) {
            if (!entry.second.snapshot) {
                writable.push_back(&entry);
            }
        }
        return writable.empty() ? nullptr : writable[random() % writable.size()];
    }
    //! What files but this one have.
    UnitCounts HeldBeside(uint64_t id) const {
        UnitCounts held;
        for (const auto &[other, entry] : model.Entries()) {
            for (const Extent &extent : entry.extents) {
                if (other != id) {
                    held.Set(extent.start, extent.units, 1);
                }
            }
        }
        return held;
    }
    std::string NewName() { return "d/" + std::to_string(random()) + std::string(random() % 40, 'n'); }
    std::string Bytes(uint64_t length) { return std::string(length, static_cast<char>('a' + random() % 26)); }

    void Create(FreeSpace &space) {
        Item item(ItemType::CREATE, next_id);
        item.kind = static_cast<uint8_t>(random() % 2 ? FileKind::DATABASE : FileKind::WAL);
        item.name = NewName();
        item.time_us = static_cast<int64_t>(random() % 1000);
        Add(std::move(item));
        Grow(*model.Entries().find(next_id++), space);
    }
    void AddSize(ItemType type, uint64_t id, uint64_t size) {
        Item item(type, id);
        item.size = size;
        item.tail = Bytes(size % lba_size_);
        item.time_us = static_cast<int64_t>(random() % 1000);
        Add(std::move(item));
    }
    // In small pieces, so that files have long lists of extents.
    std::vector<Extent> Allocate(FreeSpace &space, uint64_t file_unit, uint64_t units) {
        std::vector<Extent> extents;
        while (units > 0) {
            Extent extent = space.Allocate(std::min(units, 1 + random() % 9), random() % 4 == 0 ? last_ : 0,
                                           random() % 2 == 0, 0);
            extent.file_unit = file_unit;
            extents.push_back(extent);
            last_ = extent.start + extent.units + random() % 3;
            file_unit += extent.units;
            units -= extent.units;
        }
        return extents;
    }
    void Grow(const Entry &file, FreeSpace &space) {
        const uint64_t size =
            file.second.size + random() % (random() % 3 ? 3000 : 40 * ALLOCATION_UNIT_BYTES);
        const uint64_t units = AlignUp(size, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
        if (units > file.second.Units()) {
            Item item(ItemType::EXTENTS, file.first);
            item.extents = Allocate(space, file.second.Units(), units - file.second.Units());
            Add(std::move(item));
        }
        AddSize(ItemType::SIZE, file.first, size);
    }
    void Free(const Entry &file, uint64_t from, uint64_t to) {
        const UnitCounts held = HeldBeside(file.first);
        for (const Extent &extent : file.second.extents) {
            const uint64_t begin = std::max(from, extent.file_unit);
            const uint64_t end = std::min(to, extent.file_unit + extent.units);
            if (begin >= end) {
                continue;
            }
            held.ForEach(extent.start + (begin - extent.file_unit), end - begin,
                         [&](const UnitCounts::Piece &piece) {
                             if (piece.count == 0) {
                                 record_.freed.push_back(Extent{0, piece.start, piece.units});
                             }
                         });
        }
    }
    void Clone() {
        const Entry &source = Any();
        Item item(ItemType::CLONE, next_id++);
        item.kind = static_cast<uint8_t>(random() % 2 ? CloneKind::SNAPSHOT : CloneKind::WRITABLE);
        item.name = NewName();
        item.source_id = source.first;
        item.time_us = static_cast<int64_t>(random() % 1000);
        Add(std::move(item));
    }
    void Remap(const Entry &file, FreeSpace &space) {
        const uint64_t units = file.second.Units();
        Item item(ItemType::REMAP, file.first);
        for (uint64_t at = units == 0 ? units : random() % units; at < units && item.extents.size() < 5;) {
            const uint64_t length = std::min(units - at, 1 + random() % 12);
            Free(file, at, at + length);
            for (const Extent &fresh : Allocate(space, at, length)) {
                item.extents.push_back(fresh);
            }
            at += length + random() % 20;
        }
        Add(std::move(item));
    }
    void Truncate(const Entry &file) {
        const uint64_t size = random() % 4 == 0 ? 0 : random() % (file.second.size + 1);
        const uint64_t units = AlignUp(size, ALLOCATION_UNIT_BYTES) / ALLOCATION_UNIT_BYTES;
        Free(file, units, UINT64_MAX);
        AddSize(ItemType::TRUNCATE, file.first, size);
    }
    void SetHoles(const Entry &file) {
        Item item(ItemType::HOLES, file.first);
        const uint64_t step = file.second.size / (1 + random() % 25) + 1;
        for (uint64_t at = random() % step; at + step < file.second.size; at += step) {
            if (random() % 3 > 0) {
                item.holes.push_back(Hole{at, 1 + random() % step});
            }
        }
        Add(std::move(item));
    }
    void Move() {
        const Entry &from = Any(), &to = Any();
        Item item(ItemType::MOVE, from.first);
        if (random() % 2 == 0 && from.first != to.first) {
            item.name = to.second.name;
            item.replaced_id = to.first;
            Free(to, 0, UINT64_MAX);
        } else {
            item.name = NewName();
        }
        Add(std::move(item));
    }
    void Remove(const Entry &file) {
        Free(file, 0, UINT64_MAX);
        Add(Item(ItemType::REMOVE, file.first));
    }

    const uint32_t lba_size_;
    uint64_t last_ = 0;
    Record record_;
};

} // namespace rawduck
