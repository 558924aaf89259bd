#include "ceph/rados/connection/rados_credentials.hpp"

namespace rawduck_ceph {

std::string RadosCredentials::ToString() const {
    const std::string where = !conf.empty()       ? conf
                              : !mon_host.empty() ? mon_host
                                                  : "Ceph's default configuration";
    return "client." + (user.empty() ? "admin" : user) + " (" + where + ")";
}

std::vector<std::string> RadosCredentials::Key() const {
    return {conf, cluster, user, keyring, key, mon_host, std::to_string(timeout_s)};
}

} // namespace rawduck_ceph
