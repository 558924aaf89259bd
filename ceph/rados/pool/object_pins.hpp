//! The versions of the objects that a query has looked at. A query that opens, examines or calls an object a
//! second time must find the same version, because its plan and its rows depend on the first look.
#pragma once

#include "ceph/rados/pool/rados_pool.hpp"

#include <mutex>
#include <unordered_map>

namespace rawduck_ceph {

//! Of one query. Thread-safe.
class ObjectPins {
  public:
    //! The version that was pinned; 0: the query has not looked at the object yet.
    uint64_t Find(const RadosPool &pool, const std::string &object) const;

    //! The first look pins the version. Throws Error when another version is pinned.
    void Pin(const RadosPool &pool, const std::string &object, uint64_t version);

  private:
    mutable std::mutex mutex_; //!< guards versions_; no other lock is taken while it is held
    std::unordered_map<std::string, uint64_t> versions_;
};

} // namespace rawduck_ceph
