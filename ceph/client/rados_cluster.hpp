//! A connection to a Ceph cluster, shared by everything in the process that uses the same credentials.
#pragma once

#include "ceph/client/rados_pool.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! How to reach a cluster and as whom. What is empty is left to Ceph's own defaults.
struct RadosCredentials {
    std::string conf;        //!< a configuration file; by default those that every Ceph client reads
    std::string cluster;     //!< name of the cluster, "ceph" by default
    std::string user;        //!< without "client.", "admin" by default
    std::string keyring;     //!< a file with the user's key
    std::string key;         //!< the key itself
    std::string mon_host;    //!< monitors, instead of or without a configuration file
    uint32_t timeout_s = 30; //!< for connecting, and for every operation; 0: for ever

    //! For messages, without the key: "client.admin (/etc/ceph/ceph.conf)".
    std::string ToString() const;
    //! Everything, as a key to find a connection by.
    std::vector<std::string> Key() const;
};

//! Thread-safe. Unusable in a child made by fork(), which connects anew.
class RadosCluster {
  public:
    //! The connection that the process has with these credentials, or a new one. Throws Error: INVALID
    //! (configuration), PERMISSION (key), IO (no monitor answers within the time).
    static std::shared_ptr<RadosCluster> Connect(const RadosCredentials &credentials);

    explicit RadosCluster(const RadosCredentials &credentials);
    RadosCluster(const RadosCluster &) = delete;
    RadosCluster &operator=(const RadosCluster &) = delete;

    //! Stays usable without the cluster. Throws Error NOT_FOUND, naming the pools that there are.
    std::shared_ptr<RadosPool> Pool(const std::string &name);
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
