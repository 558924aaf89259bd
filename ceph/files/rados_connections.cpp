#include "ceph/files/rados_connections.hpp"

#include "ceph/files/visible.hpp"
#include "ceph/pushdown/feedback/pushdown_feedback.hpp"
#include "ceph/settings/rados_settings.hpp"

#include "duckdb/main/database.hpp"
#include "duckdb/main/secret/secret.hpp"
#include "duckdb/storage/object_cache.hpp"

#include <set>

namespace rawduck_ceph {

namespace {

using duckdb::FileOpener;
using duckdb::Identifier;
using duckdb::optional_ptr;
using duckdb::Value;

//! Keeps the clusters of a database connected until it is closed.
class ConnectedClusters final : public duckdb::ObjectCacheEntry {
  public:
    static std::string ObjectType() { return "rawduck_ceph_clusters"; }
    std::string GetObjectType() override { return ObjectType(); }
    duckdb::optional_idx GetEstimatedCacheMemory() const override { return {}; } // not to be evicted

    void Add(std::shared_ptr<RadosCluster> cluster) {
        std::lock_guard<std::mutex> guard(mutex_);
        clusters_.insert(std::move(cluster));
    }

  private:
    std::mutex mutex_; //!< guards clusters_; no other lock is taken while it is held
    std::set<std::shared_ptr<RadosCluster>> clusters_;
};

RadosCredentials CredentialsOf(const std::string &path, optional_ptr<FileOpener> opener) {
    RadosCredentials credentials;
    credentials.timeout_s = RadosTimeoutSeconds(opener);
    if (!opener) {
        return credentials;
    }
    duckdb::FileOpenerInfo info{path};
    duckdb::KeyValueSecretReader secret(*opener, &info, RADOS_SECRET);
    for (const CredentialField &field : CREDENTIAL_FIELDS) {
        Value value;
        if (secret.TryGetSecretKey(Identifier(field.name), value) && !value.IsNull()) {
            credentials.*field.member = value.ToString();
        }
    }
    Value restricted;
    credentials.restricted =
        secret.TryGetSecretKey(Identifier(RADOS_SECRET_RESTRICTED), restricted) && !restricted.IsNull();
    return credentials;
}

} // namespace

std::shared_ptr<RadosPool> PoolOf(const std::string &path, optional_ptr<FileOpener> opener) {
    const std::string pool = RadosPath::Parse(path).pool;
    auto cluster = RadosCluster::Connect(CredentialsOf(path, opener));
    auto database = FileOpener::TryGetDatabase(opener);
    if (database) {
        database->GetObjectCache()
            .GetOrCreate<ConnectedClusters>(ConnectedClusters::ObjectType())
            ->Add(cluster);
    }
    auto is_shown = [&](const std::string &other) {
        return !database || IsVisible(*database, RADOS_SCHEME + other, duckdb::FileType::FILE_TYPE_DIR);
    };
    return cluster->Pool(pool, PushdownFeedback::OfProcess().RatesOf(cluster->Id(), pool), is_shown);
}

} // namespace rawduck_ceph
