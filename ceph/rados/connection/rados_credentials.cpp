#include "ceph/rados/connection/rados_credentials.hpp"

namespace rawduck_ceph {

std::string RadosCredentials::ToString() const {
    const std::string where = !conf.empty()       ? conf
                              : !mon_host.empty() ? mon_host
                                                  : "Ceph's default configuration";
    return "client." + (user.empty() ? "admin" : user) + " (" + where + ")";
}

std::vector<std::string> RadosCredentials::Key() const {
    std::vector<std::string> parts = {std::to_string(timeout_s)};
    for (const CredentialField &field : CREDENTIAL_FIELDS) {
        parts.push_back(this->*field.member);
    }
    return parts;
}

} // namespace rawduck_ceph
