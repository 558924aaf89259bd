//! Where devices that live in this process are found by name: memory and simulated targets.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace rawduck {

//! The targets of one kind; `TARGET` is what their devices share. Thread-safe.
template <class TARGET> class InProcessTargets {
  public:
    //! Never destroyed: databases may be closed after static objects.
    static InProcessTargets &Instance() {
        static InProcessTargets &instance = *new InProcessTargets;
        return instance;
    }

    //! Null when there is none of that name.
    std::shared_ptr<TARGET> Find(const std::string &name) {
        std::lock_guard<std::mutex> guard(mutex_);
        const auto found = targets_.find(name);
        return found == targets_.end() ? nullptr : found->second;
    }
    //! False when the name is taken; nothing is changed then.
    bool TryAdd(const std::string &name, std::shared_ptr<TARGET> target) {
        std::lock_guard<std::mutex> guard(mutex_);
        return targets_.emplace(name, std::move(target)).second;
    }
    //! False when there is one of that name that somebody uses; nothing is changed then.
    bool TryReplace(const std::string &name, std::shared_ptr<TARGET> target) {
        std::lock_guard<std::mutex> guard(mutex_);
        std::shared_ptr<TARGET> &entry = targets_[name];
        if (entry && entry.use_count() > 1) {
            return false;
        }
        entry = std::move(target);
        return true;
    }
    void Remove(const std::string &name) {
        std::lock_guard<std::mutex> guard(mutex_);
        targets_.erase(name);
    }

  private:
    std::mutex mutex_; //!< no other lock is taken while it is held
    std::map<std::string, std::shared_ptr<TARGET>> targets_;
};

} // namespace rawduck
