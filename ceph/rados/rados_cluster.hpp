//! A connection to a Ceph cluster, shared by all databases of the process that use the same credentials.
#pragma once

#include "ceph/rados/connection/rados_credentials.hpp"
#include "ceph/rados/pool/rados_pool.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! Thread-safe. Unusable in a child of fork(), which connects again.
class RadosCluster {
  public:
    //! The process's connection with these credentials, or a new one. Throws Error: INVALID (configuration),
    //! PERMISSION (key), IO (no monitor answers within the timeout).
    static std::shared_ptr<RadosCluster> Connect(const RadosCredentials &credentials);

    explicit RadosCluster(const RadosCredentials &credentials);
    RadosCluster(const RadosCluster &) = delete;
    RadosCluster &operator=(const RadosCluster &) = delete;

    //! Whether an error may tell that there is a pool of this name.
    using IsShown = std::function<bool(const std::string &pool)>;

    //! The pool keeps the connection open. `observer` is told of its reads; must be the same one for each
    //! call. Throws Error NOT_FOUND, which lists the existing pools.
    std::shared_ptr<RadosPool> Pool(const std::string &name, std::shared_ptr<ReadObserver> observer,
                                    const IsShown &is_shown);
    std::vector<std::string> PoolNames();
    //! The cluster's UUID.
    const std::string &Id() const { return id_; }

  private:
    //! The pool's number, or a negative errno.
    int64_t LookUp(const std::string &pool);

    std::shared_ptr<RadosHandle> handle_;
    std::string id_;
    std::mutex mutex_; //!< guards pools_; a new pool is opened under it, and takes the lock of the statistics
    std::map<std::string, std::shared_ptr<RadosPool>> pools_;
};

} // namespace rawduck_ceph
