//! Small replies that are kept, so that the same request about the same version of an object runs only once.
//! Bounded in bytes; what was asked for the longest time ago makes room. Free of DuckDB; used by one thread.
#pragma once

#include "ceph/channel/call_key.hpp"

#include <list>
#include <map>
#include <string>

namespace rawduck_ceph {

class ReplyCache {
  public:
    //! What an entry takes beside its bytes, rounded up.
    static constexpr uint64_t ENTRY_BYTES = 256;

    //! `bytes_max`: of all entries with what they take beside their bytes; 0: nothing is kept.
    explicit ReplyCache(uint64_t bytes_max) : bytes_max_(bytes_max) {}

    //! The encoded reply, which says that it is a kept one; null for none. Valid until the next Keep.
    const std::string *Find(const CallKey &key);
    //! Keeps the reply in a sealed file in memory, if it is small and is one: errors are never kept.
    void Keep(const CallKey &key, int file, uint64_t bytes);

    size_t Count() const { return entries_.size(); }
    uint64_t Bytes() const { return bytes_; }

  private:
    struct Entry {
        CallKey key;
        std::string encoded;

        uint64_t Bytes() const { return encoded.size() + ENTRY_BYTES; }
    };
    using Entries = std::list<Entry>;

    void Erase(Entries::iterator entry);

    const uint64_t bytes_max_;
    Entries entries_; //!< the one that was asked for last first
    std::map<CallKey, Entries::iterator> by_key_;
    uint64_t bytes_ = 0;
};

} // namespace rawduck_ceph
