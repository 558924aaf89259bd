#include "ceph/files/rados_connections.hpp"

#include "common/error.hpp"

#include "duckdb/main/database.hpp"
#include "duckdb/main/secret/secret.hpp"
#include "duckdb/storage/object_cache.hpp"

#include <set>

namespace rawduck_ceph {

using rawduck::Error;
using rawduck::ErrorCode;

namespace {

using duckdb::FileOpener;
using duckdb::Identifier;
using duckdb::optional_ptr;
using duckdb::Value;

//! Keeps the clusters of a database connected until it is closed.
class OpenClusters final : public duckdb::ObjectCacheEntry {
  public:
    static std::string ObjectType() { return "rawduck_ceph_clusters"; }
    std::string GetObjectType() override { return ObjectType(); }
    duckdb::optional_idx GetEstimatedCacheMemory() const override { return {}; } // not to be evicted

    void Keep(std::shared_ptr<RadosCluster> cluster) {
        std::lock_guard<std::mutex> guard(mutex_);
        clusters_.insert(std::move(cluster));
    }

  private:
    std::mutex mutex_;
    std::set<std::shared_ptr<RadosCluster>> clusters_;
};

uint32_t TimeoutOf(optional_ptr<FileOpener> opener) {
    Value value;
    if (!FileOpener::TryGetCurrentSetting(opener, Identifier(SETTING_RADOS_TIMEOUT), value) ||
        value.IsNull()) {
        return RADOS_TIMEOUT_DEFAULT_S;
    }
    return value.GetValue<uint32_t>();
}

RadosCredentials CredentialsOf(const std::string &path, optional_ptr<FileOpener> opener) {
    RadosCredentials credentials;
    credentials.timeout_s = TimeoutOf(opener);
    if (!opener) {
        return credentials;
    }
    duckdb::FileOpenerInfo info{path};
    duckdb::KeyValueSecretReader secret(*opener, &info, RADOS_SECRET);
    for (auto &field : {std::pair<const char *, std::string &>{"conf", credentials.conf},
                        {"cluster", credentials.cluster},
                        {"user", credentials.user},
                        {"keyring", credentials.keyring},
                        {"key", credentials.key},
                        {"mon_host", credentials.mon_host}}) {
        Value value;
        if (secret.TryGetSecretKey(Identifier(field.first), value) && !value.IsNull()) {
            field.second = value.ToString();
        }
    }
    return credentials;
}

} // namespace

std::shared_ptr<RadosPool> PoolOf(const std::string &path, optional_ptr<FileOpener> opener) {
    const std::string pool = RadosPath::Parse(path).pool;
    auto cluster = RadosCluster::Connect(CredentialsOf(path, opener));
    auto database = FileOpener::TryGetDatabase(opener);
    if (database) {
        database->GetObjectCache().GetOrCreate<OpenClusters>(OpenClusters::ObjectType())->Keep(cluster);
    }
    return cluster->Pool(pool);
}

} // namespace rawduck_ceph
