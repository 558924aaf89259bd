#include "ceph/rados/connection/rados_credentials.hpp"

#include "common/error.hpp"

namespace rawduck_ceph {

std::string RadosCredentials::ToString() const {
    const std::string where = !conf.empty()       ? conf
                              : !mon_host.empty() ? mon_host
                                                  : "Ceph's default configuration";
    return "client." + (user.empty() ? "admin" : user) + " (" + where + ")";
}

std::vector<std::string> RadosCredentials::Key() const {
    std::vector<std::string> parts = {std::to_string(timeout_s), restricted ? "restricted" : ""};
    for (const CredentialField &field : CREDENTIAL_FIELDS) {
        parts.push_back(this->*field.member);
    }
    return parts;
}

void RadosCredentials::RequirePlainNames() const {
    constexpr const char *PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    for (const std::string &name : {cluster, user}) {
        if (name.find_first_not_of(PLAIN) != std::string::npos || name.find("..") != std::string::npos) {
            throw rawduck::Error(
                rawduck::ErrorCode::INVALID,
                "Ceph: '" + name +
                    "' cannot be USER or CLUSTER of a secret, which consist of letters, digits, "
                    "'_', '.' and '-', without '..'");
        }
    }
}

} // namespace rawduck_ceph
