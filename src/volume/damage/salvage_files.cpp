#include "volume/damage/salvage_files.hpp"

#include "common/error.hpp"
#include "volume/catalog/catalog_tree.hpp"
#include "volume/damage/catalog.hpp"
#include "volume/journal/choose_tree_superblock.hpp"
#include "volume/tree/number_key.hpp"

#include <cstring>

namespace rawduck {

namespace {

//! Of pages that are read once, and of trees that lead to one file after the other.
constexpr uint64_t CACHE_BYTES = 16 * MIB;

bool IsDamage(const Error &error) {
    return error.Code() == ErrorCode::IO || error.Code() == ErrorCode::CORRUPT;
}

//! The items that make a file as it is.
std::vector<Item> ItemsOf(uint64_t id, const CatalogEntry &entry) {
    std::vector<Item> items(4);
    for (Item &item : items) {
        item.file_id = id;
    }
    items[0].type = ItemType::CREATE;
    items[0].kind = static_cast<uint8_t>(entry.kind);
    items[0].time_us = entry.created_us;
    items[0].name = entry.name;
    items[1].type = ItemType::EXTENTS;
    items[1].extents = entry.extents;
    items[2].type = ItemType::HOLES;
    items[2].holes = entry.holes;
    items[3].type = ItemType::SIZE;
    items[3].size = entry.size;
    items[3].time_us = entry.modified_us;
    items[3].tail = entry.tail;
    return items;
}

class Salvage {
  public:
    Salvage(BlockIo &io, const JournalImage &image)
        : image_(image), pages_([] { return 0; }, [](uint64_t) {}),
          store_(io, image.superblock.uuid, pages_, NumberInMount(image.superblock.mounts + 1, 1),
                 CACHE_BYTES),
          tree_(store_, image.superblock.roots, image.superblock.lba_size, DataArea(image.superblock)),
          catalog_(image.superblock.lba_size, AllocationUnit{image.superblock.data_start},
                   AllocationUnit{image.superblock.data_end}) {}

    VolumeFiles Run() {
        ReadCheckpoint();
        for (const std::vector<Item> &items : image_.records) {
            for (const Item &item : items) {
                ApplyItem(item);
            }
        }
        files_.entries = catalog_.Entries();
        return std::move(files_);
    }

  private:
    // A name leads to a file whose entry is lost, and an entry has the name of the file.
    void ReadCheckpoint() {
        std::map<uint64_t, std::string> names;
        Tree(store_, image_.superblock.roots.names)
            .ScanReadable([&](std::string_view name, std::string_view value) {
                uint64_t id = 0;
                memcpy(&id, value.data(), std::min(value.size(), sizeof id));
                names[id] = name;
                return true;
            });
        std::vector<uint64_t> ids;
        const std::vector<std::string> problems =
            Tree(store_, image_.superblock.roots.files)
                .ScanReadable([&](std::string_view key, std::string_view) {
                    if (key.size() == NumberKey::BYTES) {
                        ids.push_back(NumberKey::NumberOf(key));
                    }
                    return true;
                });
        lost_entries_ = problems.empty() ? "its entry is missing in the metadata" : problems.front();
        for (const uint64_t id : ids) {
            ReadFile(id, names[id]);
            names.erase(id);
        }
        for (const auto &[id, name] : names) {
            files_.unreadable[id] = {name, FileKind::OTHER, 0, lost_entries_};
        }
    }

    void ReadFile(uint64_t id, const std::string &name) {
        UnreadableFile lost{name, FileKind::OTHER, 0, ""};
        try {
            FileEntry entry = *tree_.Find(id);
            lost = {entry.name, entry.kind, entry.size, ""};
            FileLists::Contents contents;
            const std::vector<std::string> problems =
                FileLists(store_, entry)
                    .FindProblems([](const PagePointer &) { return true; }, [](const Extent &) {}, contents);
            lost.why = problems.empty() ? "" : problems.front();
            if (problems.empty()) {
                lost.why = Add(id, tree_.Load(id));
            }
        } catch (const Error &error) {
            if (!IsDamage(error)) {
                throw;
            }
            lost.why = error.what();
        }
        if (!lost.why.empty()) {
            files_.unreadable[id] = std::move(lost);
        }
    }

    //! Returns what is wrong with the file.
    std::string Add(uint64_t id, const CatalogEntry &entry) {
        std::string problem;
        for (const Item &item : ItemsOf(id, entry)) {
            if (!catalog_.Apply(item, problem)) {
                Drop(id);
                return problem;
            }
        }
        if (entry.snapshot) {
            catalog_.MarkSnapshot(id);
        }
        return "";
    }

    void Drop(uint64_t id) {
        std::string problem;
        if (catalog_.Entries().count(id) != 0) {
            catalog_.Apply(Item(ItemType::REMOVE, id), problem);
        }
    }

    bool IsKnown(uint64_t id) const { return catalog_.Entries().count(id) != 0; }

    void ApplyItem(Item item) {
        if (item.type == ItemType::DATA_CHECKSUM) {
            return;
        }
        if (item.type == ItemType::MOVE && !IsKnown(item.replaced_id)) {
            files_.unreadable.erase(item.replaced_id);
            item.replaced_id = 0;
        }
        const uint64_t told_of = item.type == ItemType::CLONE ? item.source_id : item.file_id;
        if (!IsKnown(told_of) && item.type != ItemType::CREATE) {
            ApplyToUnreadable(item);
            return;
        }
        std::string problem;
        if (!catalog_.Apply(item, problem)) {
            const bool known = IsKnown(item.file_id);
            const CatalogEntry entry = known ? catalog_.Entries().at(item.file_id) : CatalogEntry();
            files_.unreadable[item.file_id] = {known ? entry.name : item.name, entry.kind, entry.size,
                                               problem};
            Drop(item.file_id);
        }
    }

    void ApplyToUnreadable(const Item &item) {
        if (item.type == ItemType::REMOVE) {
            files_.unreadable.erase(item.file_id);
        } else if (item.type == ItemType::CLONE) { // what cannot be read of its source cannot be read of it
            const auto source = files_.unreadable.find(item.source_id);
            UnreadableFile lost{item.name, FileKind::OTHER, 0, lost_entries_};
            if (source != files_.unreadable.end()) {
                lost = source->second;
                lost.name = item.name;
            }
            files_.unreadable[item.file_id] = lost;
        } else if (item.type == ItemType::MOVE) {
            const auto [lost, is_new] = files_.unreadable.try_emplace(item.file_id);
            lost->second.name = item.name;
            lost->second.why = is_new ? lost_entries_ : lost->second.why;
            Drop(item.replaced_id);
        }
    }

    const JournalImage &image_;
    PageSpace pages_; //!< of which none is taken
    PageStore store_;
    CatalogTree tree_;
    Catalog catalog_;
    VolumeFiles files_;
    std::string lost_entries_; //!< why there are none
};

} // namespace

VolumeFiles SalvageFiles(BlockIo &io, const JournalImage &image) {
    VolumeFiles files = Salvage(io, image).Run();
    JournalImage again; // of a device that is gone nothing can be read, and it is no damaged volume
    ChooseTreeSuperblock(io, again);
    return files;
}

} // namespace rawduck
