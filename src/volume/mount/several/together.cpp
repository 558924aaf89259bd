//! Several files that are removed or get other names in one record.

#include "volume/mount/volume_state.hpp"

#include "common/make_room.hpp"

#include <algorithm>

namespace rawduck {

namespace {

//! Removes files, one inside the other: `queue` is called when the publishes of all of them have ended.
class Removing {
  public:
    explicit Removing(const std::vector<std::shared_ptr<File>> &files)
        : files_(files), known_(files.size()) {}

    void Run(VolumeState &state, const std::function<void(std::vector<Item> items)> &queue) {
        std::vector<Item> items;
        std::function<void(size_t)> retire = [&](size_t first) {
            if (first == files_.size()) {
                queue(std::move(items));
                return;
            }
            state.Retire(files_[first], [&, first](bool published) {
                known_[first] = published;
                if (published) {
                    items.emplace_back(ItemType::REMOVE, files_[first]->Id());
                }
                retire(first + 1);
            });
        };
        retire(0);
    }
    //! Once they have no name any more. Returns the ticket to commit; all of them are gone, also when this fails.
    uint64_t Free(VolumeState &state) const {
        uint64_t ticket = 0;
        for (size_t i = 0; i < files_.size(); i++) {
            if (known_[i]) {
                ticket = state.QueueFreed(*files_[i]);
            } else if (files_[i]->handles == 0) {
                state.space.Discard(files_[i]->TakeExtents());
            }
        }
        return ticket;
    }

  private:
    const std::vector<std::shared_ptr<File>> &files_;
    std::vector<bool> known_; //!< to the log
};

} // namespace

uint64_t VolumeState::QueueRemoveTogether(const std::vector<std::shared_ptr<File>> &files) {
    std::vector<Names::iterator> entries;
    for (const std::shared_ptr<File> &file : files) {
        entries.push_back(names.find(file->Name()));
    }
    Removing removing(files);
    removing.Run(*this, [&](std::vector<Item> items) {
        if (!items.empty()) {
            log.Queue(std::move(items));
        }
    });
    for (const Names::iterator entry : entries) {
        names.erase(entry);
    }
    return removing.Free(*this);
}

uint64_t VolumeState::QueueMoveTogether(const std::vector<NewName> &moved,
                                        const std::vector<std::shared_ptr<File>> &replaced) {
    std::vector<Names::node_type> taken,
        given; // the names, of which the first go back if it does not come to its end
    uint64_t ticket = 0;
    Removing removing(replaced);
    for (const NewName &change : moved) {
        CheckCreatable(change.name);
        RequireNoNameOfSnapshot(change.name);
    }
    try {
        for (const std::shared_ptr<File> &file : replaced) {
            MakeRoom(taken, 1);
            taken.push_back(names.extract(file->Name()));
        }
        for (const NewName &change : moved) {
            MakeRoom(taken, 1);
            taken.push_back(names.extract(change.file->Name()));
        }
        for (const NewName &change : moved) {
            Names node;
            MakeRoom(given, 1);
            given.push_back(node.extract(node.emplace(change.name, change.file).first));
        }
        std::vector<Item> items;
        const auto queue = [&](std::vector<Item> removals) {
            removals.insert(removals.end(), items.begin(), items.end());
            ticket = log.Queue(std::move(removals));
        };
        std::function<void(size_t)> rename = [&](size_t first) {
            if (first == moved.size()) {
                removing.Run(*this, queue);
                return;
            }
            items.emplace_back(ItemType::MOVE, moved[first].file->Id());
            items.back().name = moved[first].name;
            moved[first].file->Rename(moved[first].name, [&] { rename(first + 1); });
        };
        rename(0);
    } catch (...) {
        for (Names::node_type &name : taken) {
            names.insert(std::move(name));
        }
        throw;
    }
    for (Names::node_type &name : given) {
        names.insert(std::move(name));
    }
    return std::max(ticket, removing.Free(*this));
}

} // namespace rawduck
