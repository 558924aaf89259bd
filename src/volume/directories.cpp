#include "volume/volume.hpp"

#include "common/error.hpp"
#include "volume/mount/volume_state.hpp"
#include "volume/names/file_name.hpp"

#include <algorithm>
#include <set>

namespace rawduck {

bool Volume::DirectoryExists(const std::string &name) const {
    std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
    const std::shared_ptr<File> entry = state_->Find(name);
    return name.empty() || (entry && entry->Kind() == FileKind::DIRECTORY) || state_->HasChildren(name);
}

void Volume::MakeDirectory(const std::string &name) {
    CheckFileName(state_->target.name, name);
    if (DirectoryExists(name)) {
        return;
    }
    WriteScope writing(*state_);
    state_->WithRoom([&] {
        std::unique_lock<std::shared_mutex> guard(state_->names_mutex);
        const std::shared_ptr<File> entry = state_->Find(name);
        if (entry && entry->Kind() != FileKind::DIRECTORY) {
            throw Error(ErrorCode::EXISTS, state_->target.name + ": cannot make the directory \"" + name +
                                               "\": a file has that name");
        }
        if (!entry) {
            state_->Create(name, FileKind::DIRECTORY);
        }
    });
    state_->log.Commit(state_->log.Queue({}));
    writing.Finish();
}

bool Volume::RemoveDirectory(const std::string &name, bool recursive) {
    if (name.empty() || !DirectoryExists(name)) {
        return false;
    }
    WriteScope writing(*state_);
    uint64_t ticket = 0;
    {
        std::unique_lock<std::shared_mutex> guard(state_->names_mutex);
        const auto found = state_->names.find(name);
        const bool is_file = found != state_->names.end() && found->second->Kind() != FileKind::DIRECTORY;
        if (is_file || (state_->HasChildren(name) && !recursive)) { // it was a directory before the wait
            return false;
        }
        const std::string prefix = name + "/";
        const auto begin = state_->names.lower_bound(prefix);
        const auto is_below = [&](VolumeState::Names::iterator entry) {
            return entry != state_->names.end() && entry->first.compare(0, prefix.size(), prefix) == 0;
        };
        for (auto entry = begin; is_below(entry); ++entry) {
            state_->RequireRemovable(*entry->second);
        }
        for (auto entry = begin; is_below(entry);) {
            ticket = std::max(ticket, state_->QueueRemove(entry++));
        }
        auto itself = state_->names.find(name);
        if (itself != state_->names.end()) {
            ticket = std::max(ticket, state_->QueueRemove(itself));
        }
    }
    state_->log.Commit(ticket);
    writing.Finish();
    return true;
}

void Volume::List(const std::string &directory,
                  const std::function<void(const std::string &, bool)> &visit) const {
    std::set<std::pair<std::string, bool>> children;
    {
        std::shared_lock<std::shared_mutex> guard(state_->names_mutex);
        const std::string prefix = directory.empty() ? "" : directory + "/";
        for (auto entry = state_->names.lower_bound(prefix);
             entry != state_->names.end() && entry->first.compare(0, prefix.size(), prefix) == 0; ++entry) {
            const std::string rest = entry->first.substr(prefix.size());
            const size_t slash = rest.find('/');
            const bool is_directory =
                slash != std::string::npos || entry->second->Kind() == FileKind::DIRECTORY;
            children.insert({rest.substr(0, slash), is_directory});
        }
    }
    for (const auto &[name, is_directory] : children) {
        visit(name, is_directory);
    }
}

} // namespace rawduck
