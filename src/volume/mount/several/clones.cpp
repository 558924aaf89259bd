//! Files that are made with the contents of others: what of VolumeState is about that.

#include "volume/mount/volume_state.hpp"

#include "common/error.hpp"
#include "common/make_room.hpp"
#include "volume/names/snapshot_name.hpp"

#include <iterator>
#include <set>

namespace rawduck {

namespace {

//! Makes the files of a list of copies, and takes back what it has done if it does not come to its end.
class Cloning {
  public:
    explicit Cloning(VolumeState &state) : state_(state) {}
    ~Cloning() {
        for (size_t i = 0; i < made_.size() && !queued_; i++) {
            state_.names.erase(made_[i].file->Name());
            state_.space.Free(made_[i].shared);
        }
    }
    Cloning(const Cloning &) = delete;
    Cloning &operator=(const Cloning &) = delete;

    // What was queued of the sources is in the trees then, and stays what is published: so these say what a clone has.
    void Hold(const std::vector<VolumeState::Copy> &copies) {
        std::set<const File *> sources;
        for (const VolumeState::Copy &copy : copies) {
            if (sources.insert(copy.source.get()).second) {
                held_.push_back(copy.source->HoldPublishes());
            }
        }
        state_.log.Commit(state_.log.Queue({}));
    }

    void Make(const VolumeState::Copy &copy) {
        const uint64_t id = state_.next_file_id + made_.size();
        Item item = CloneItem(id, copy.kind, copy.name, copy.source->Id());
        item.time_us = copy.created_us != 0 ? copy.created_us : item.time_us;
        CatalogEntry entry;
        {
            std::shared_lock<std::shared_mutex> guard(state_.trees->store.Mutex());
            entry = state_.trees->catalog.Load(copy.source->Id());
        }
        entry.name = item.name;
        entry.snapshot = copy.kind == CloneKind::SNAPSHOT;
        entry.created_us = item.time_us;
        const auto file = std::make_shared<File>(state_.context, id, entry, File::Cloned());
        MakeRoom(made_, 1);
        items_.push_back(std::move(item));
        const std::unique_lock<Gate> gate = copy.source->BeginSharing();
        const auto name = state_.names.emplace(copy.name, file).first;
        try {
            state_.space.Share(entry.extents);
        } catch (...) {
            state_.names.erase(name);
            throw;
        }
        made_.push_back({file, std::move(entry.extents)});
    }

    //! In the same record, before the files are made: what has a name that one of them is to have.
    void RemoveFirst(const std::vector<std::shared_ptr<File>> &replaced) {
        std::vector<Item> items;
        for (const std::shared_ptr<File> &file : replaced) {
            items.emplace_back(ItemType::REMOVE, file->Id());
        }
        items_.insert(items_.begin(), std::make_move_iterator(items.begin()),
                      std::make_move_iterator(items.end()));
    }

    uint64_t Queue() {
        const uint64_t ticket = state_.log.Queue(std::move(items_));
        queued_ = true;
        state_.next_file_id += made_.size();
        return ticket;
    }

  private:
    struct Made {
        std::shared_ptr<File> file;
        std::vector<Extent> shared;
    };
    VolumeState &state_;
    std::vector<std::unique_lock<std::mutex>> held_;
    std::vector<Made> made_;
    std::vector<Item> items_;
    bool queued_ = false;
};

} // namespace

void VolumeState::RequireNoSnapshot(const File &file, const char *what) const {
    if (!file.IsSnapshot()) {
        return;
    }
    const std::string name = file.Name(), database = DatabaseOfLog(name);
    const std::string path = "nvme://" + target.name + "/" + (database.empty() ? name : database);
    throw Error(ErrorCode::READ_ONLY,
                target.name + ": \"" + name + "\" belongs to a snapshot, which cannot be " + what +
                    ": attach it with READ_ONLY, make a database of it with "
                    "nvme_clone('" +
                    path + "', <new name>), or give it up with nvme_drop_snapshot('" + path + "')");
}

uint64_t VolumeState::QueueClones(const std::vector<Copy> &copies,
                                  const std::vector<std::shared_ptr<File>> &replaced) {
    std::vector<Names::node_type> taken; // the names, which go back if it does not come to its end
    uint64_t ticket = 0;
    for (const Copy &copy : copies) {
        if (copy.kind == CloneKind::WRITABLE) {
            RequireNoNameOfSnapshot(copy.name); // beside what it replaces
        }
    }
    try {
        for (const std::shared_ptr<File> &file : replaced) {
            MakeRoom(taken, 1);
            taken.push_back(names.extract(file->Name()));
        }
        for (const Copy &copy : copies) {
            CheckCreatable(copy.name);
        }
        Cloning cloning(*this);
        cloning.Hold(copies);
        for (const Copy &copy : copies) {
            cloning.Make(copy);
        }
        cloning.RemoveFirst(replaced);
        // One inside the other: the record is queued when the publishes of all of them have ended.
        std::function<void(size_t)> retire = [&](size_t first) {
            if (first == replaced.size()) {
                ticket = cloning.Queue();
                return;
            }
            Retire(replaced[first], [&](bool) { retire(first + 1); });
        };
        retire(0);
    } catch (...) {
        for (Names::node_type &name : taken) {
            names.insert(std::move(name));
        }
        throw;
    }
    for (const std::shared_ptr<File> &file : replaced) { // all of them are gone, also when this fails
        ticket = QueueFreed(*file);
    }
    return ticket;
}

} // namespace rawduck
