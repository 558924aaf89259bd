#include "ceph/rados/rados_cluster.hpp"

#include "ceph/rados/connection/rados_error.hpp"
#include "ceph/rados/connection/rados_handle.hpp"
#include "ceph/rados/connection/rados_path.hpp"

#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace rawduck_ceph {
namespace {

//! The connection of one set of credentials.
struct Slot {
    //! Guards `cluster`. Held while connecting, which may take long; the lock of the registry is not. Taken
    //! after the lock of the registry where both are held.
    std::mutex mutex;
    std::weak_ptr<RadosCluster> cluster;
};

//! Whether a slot is not in use and its connection is closed. The caller holds the lock of the registry.
bool IsUnused(const std::shared_ptr<Slot> &slot) {
    if (slot.use_count() > 1) {
        return false;
    }
    // The lock makes visible what the last user of the slot wrote.
    std::lock_guard<std::mutex> guard(slot->mutex);
    return slot->cluster.expired();
}

std::shared_ptr<Slot> SlotFor(const RadosCredentials &credentials) {
    // The lock of the registry, taken before that of a slot. Both are never destroyed: connections may
    // outlive static objects.
    static std::mutex &mutex = *new std::mutex;
    static auto &slots = *new std::map<std::vector<std::string>, std::shared_ptr<Slot>>;
    auto key = credentials.Key();
    key.push_back(std::to_string(getpid())); // a child of fork() needs a connection of its own
    std::lock_guard<std::mutex> guard(mutex);
    for (auto it = slots.begin(); it != slots.end();) {
        it = IsUnused(it->second) ? slots.erase(it) : std::next(it);
    }
    auto &slot = slots[key];
    if (!slot) {
        slot = std::make_shared<Slot>();
    }
    return slot;
}

std::string FetchId(rados_t cluster) {
    char id[64] = {};
    const int code = rados_cluster_fsid(cluster, id, sizeof id);
    if (code < 0) {
        ThrowRadosError(code, "Ceph", "ask the cluster for its UUID");
    }
    return id;
}

//! "; it has: a, b"; empty where no pool is shown.
std::string ExistingPools(const std::vector<std::string> &names, const RadosCluster::IsShown &is_shown) {
    std::string result;
    for (auto &name : names) {
        if (is_shown(name)) {
            result += (result.empty() ? "; it has: " : ", ") + name;
        }
    }
    return result;
}

} // namespace

std::shared_ptr<RadosCluster> RadosCluster::Connect(const RadosCredentials &credentials) {
    auto slot = SlotFor(credentials);
    std::lock_guard<std::mutex> guard(slot->mutex);
    auto cluster = slot->cluster.lock();
    if (!cluster) {
        cluster = std::make_shared<RadosCluster>(credentials);
        slot->cluster = cluster;
    }
    return cluster;
}

RadosCluster::RadosCluster(const RadosCredentials &credentials)
    : handle_(std::make_shared<RadosHandle>(credentials)), id_(FetchId(handle_->Get())) {}

int64_t RadosCluster::LookUp(const std::string &pool) {
    int64_t id = rados_pool_lookup(handle_->Get(), pool.c_str());
    if (id == -ENOENT) {
        // The client's map of the cluster may be older than the pool.
        const int code = rados_wait_for_latest_osdmap(handle_->Get());
        if (code < 0) {
            ThrowRadosError(code, RADOS_SCHEME + pool, "ask the monitors for the pool");
        }
        id = rados_pool_lookup(handle_->Get(), pool.c_str());
    }
    return id;
}

std::shared_ptr<RadosPool> RadosCluster::Pool(const std::string &name, std::shared_ptr<ReadObserver> observer,
                                              const IsShown &is_shown) {
    handle_->RequireSameProcess(RADOS_SCHEME + name);
    const int64_t id = LookUp(name);
    if (id == -ENOENT) {
        throw Error(ErrorCode::NOT_FOUND, RADOS_SCHEME + name + ": the cluster has no pool of this name" +
                                              ExistingPools(PoolNames(), is_shown) +
                                              ". `ceph osd pool create " + name + "` makes it");
    }
    if (id < 0) {
        ThrowRadosError(static_cast<int>(id), RADOS_SCHEME + name, "find the pool");
    }
    std::lock_guard<std::mutex> guard(mutex_);
    auto &pool = pools_[name];
    if (!pool || pool->Id() != id) { // removed and created again under the same name
        pool = std::make_shared<RadosPool>(handle_, name, id, id_, std::move(observer));
    }
    return pool;
}

std::vector<std::string> RadosCluster::PoolNames() {
    std::string text(64 << 10, '\0');
    const int code = rados_pool_list(handle_->Get(), text.data(), text.size());
    if (code < 0) {
        ThrowRadosError(code, "Ceph", "list the pools");
    }
    std::vector<std::string> names;
    for (const char *name = text.c_str(); *name; name += std::strlen(name) + 1) {
        names.emplace_back(name);
    }
    return names;
}

} // namespace rawduck_ceph
