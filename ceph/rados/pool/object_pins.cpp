#include "ceph/rados/pool/object_pins.hpp"

#include "ceph/rados/connection/rados_error.hpp"
#include "ceph/rados/connection/rados_path.hpp"

#include <cerrno>

namespace rawduck_ceph {

uint64_t ObjectPins::Find(const RadosPool &pool, const std::string &object) const {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = versions_.find(pool.KeyOf(object));
    return found == versions_.end() ? 0 : found->second;
}

void ObjectPins::Pin(const RadosPool &pool, const std::string &object, uint64_t version) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t pinned = versions_.emplace(pool.KeyOf(object), version).first->second;
    if (pinned != version) {
        ThrowRadosError(-ERANGE, RadosPath{pool.Name(), object}.ToString(),
                        "go on with version " + std::to_string(version) + " after version " +
                            std::to_string(pinned));
    }
}

} // namespace rawduck_ceph
