//! A map of bounded size for what can be computed or measured again.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace rawduck_ceph {

//! Cleared when it is full, which is simpler than an eviction order and rare. Thread-safe.
template <class VALUE> class BoundedCache {
  public:
    explicit BoundedCache(size_t entries_max) : entries_max_(entries_max) {}

    std::optional<VALUE> Find(const std::string &key) const {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = entries_.find(key);
        return found == entries_.end() ? std::nullopt : std::optional<VALUE>(found->second);
    }

    void Store(const std::string &key, VALUE value) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (entries_.size() >= entries_max_) {
            entries_.clear();
        }
        entries_[key] = std::move(value);
    }

  private:
    const size_t entries_max_;
    mutable std::mutex mutex_; //!< guards entries_; no other lock is taken while it is held
    std::unordered_map<std::string, VALUE> entries_;
};

} // namespace rawduck_ceph
