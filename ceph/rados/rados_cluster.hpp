//! A connection to a Ceph cluster, shared by everything in the process that uses the same credentials.
#pragma once

#include "ceph/rados/connection/rados_credentials.hpp"
#include "ceph/rados/pool/rados_pool.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! Thread-safe. Unusable in a child made by fork(), which connects anew.
class RadosCluster {
  public:
    //! The connection that the process has with these credentials, or a new one. Throws Error: INVALID
    //! (configuration), PERMISSION (key), IO (no monitor answers within the time).
    static std::shared_ptr<RadosCluster> Connect(const RadosCredentials &credentials);

    explicit RadosCluster(const RadosCredentials &credentials);
    RadosCluster(const RadosCluster &) = delete;
    RadosCluster &operator=(const RadosCluster &) = delete;

    //! Stays usable without the cluster. `observer` is told of its reads; give the same one each time. Throws
    //! Error NOT_FOUND, naming the pools that there are.
    std::shared_ptr<RadosPool> Pool(const std::string &name, std::shared_ptr<ReadObserver> observer);
    std::vector<std::string> PoolNames();
    //! The cluster's UUID.
    const std::string &Id() const { return id_; }

  private:
    int64_t LookUp(const std::string &pool);

    std::shared_ptr<RadosHandle> handle_;
    std::string id_;
    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<RadosPool>> pools_;
};

} // namespace rawduck_ceph
