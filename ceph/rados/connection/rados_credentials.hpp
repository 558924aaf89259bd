//! How to reach a cluster, and as which user.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! Empty fields have Ceph's own defaults.
struct RadosCredentials {
    std::string conf;       //!< path of a configuration file; by default those that every Ceph client reads
    std::string cluster;    //!< name of the cluster, "ceph" by default
    std::string user;       //!< without "client.", "admin" by default
    std::string keyring;    //!< path of a file with the user's key
    std::string key;        //!< the key itself
    std::string mon_host;   //!< addresses of monitors, which replace those of the configuration file
    uint32_t timeout_s = 0; //!< for connecting, and for each operation; 0: none
    //! They come from a database with restricted access. It may read the files that the fields name, but not what
    //! those may name in turn: perhaps its user has written them.
    bool restricted = false;

    //! For error messages, without the key: "client.admin (/etc/ceph/ceph.conf)".
    std::string ToString() const;
    //! All fields, as the key of a map of connections.
    std::vector<std::string> Key() const;
    //! Of the cluster and the user, which Ceph puts into paths of files. Throws Error INVALID.
    void RequirePlainNames() const;
};

struct CredentialField {
    const char *name; //!< of the secret's parameter
    std::string RadosCredentials::*member;
};

//! The parameters of a secret.
constexpr CredentialField CREDENTIAL_FIELDS[] = {
    {"conf", &RadosCredentials::conf}, {"cluster", &RadosCredentials::cluster},
    {"user", &RadosCredentials::user}, {"keyring", &RadosCredentials::keyring},
    {"key", &RadosCredentials::key},   {"mon_host", &RadosCredentials::mon_host},
};

} // namespace rawduck_ceph
