//! Secrets of TYPE rados, which name a cluster and a user.
#include "ceph/sql/functions.hpp"

#include "ceph/files/rados_connections.hpp"
#include "ceph/files/visible.hpp"
#include "ceph/rados/connection/rados_path.hpp"
#include "extension/file_systems/errors.hpp"

#include "duckdb/common/file_system.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/main/secret/secret.hpp"

namespace rawduck_ceph {
namespace {

using duckdb::Identifier;
using duckdb::LogicalType;

//! The value of a parameter; empty where it is not given.
std::string ParameterOf(const duckdb::CreateSecretInput &input, const char *name) {
    const auto given = input.options.find(name);
    return given == input.options.end() || given->second.IsNull() ? "" : given->second.ToString();
}

//! Ceph puts the names of the cluster and of the user into paths of files.
void CheckNames(const duckdb::CreateSecretInput &input) {
    RadosCredentials credentials;
    credentials.cluster = ParameterOf(input, "cluster");
    credentials.user = ParameterOf(input, "user");
    rawduck::Translated([&] { credentials.RequirePlainNames(); });
}

//! librados reads these files itself, bypassing DuckDB's access settings. FileExists throws where they forbid a
//! file. Where they forbid any, the paths must be to librados what they are to DuckDB: it also ends a path at
//! ';', '=' and blanks, and replaces '$' and '~'.
void CheckFileAccess(duckdb::ClientContext &context, const duckdb::CreateSecretInput &input,
                     bool is_restricted) {
    for (auto *parameter : {"conf", "keyring"}) {
        const std::string paths = ParameterOf(input, parameter);
        if (is_restricted && paths.find_first_of(";=$~ \t\r\n\v\f") != std::string::npos) {
            throw duckdb::PermissionException(
                "Cannot access \"%s\", the %s of a secret - file system operations are disabled by "
                "configuration, "
                "and its path has one of ; = $ ~ or a blank, which Ceph gives a meaning",
                paths, parameter);
        }
        if (paths.empty()) {
            continue; // Ceph's own
        }
        for (auto &path : duckdb::StringUtil::Split(paths, ",")) {
            duckdb::FileSystem::GetFileSystem(context).FileExists(path);
        }
    }
}

duckdb::unique_ptr<duckdb::BaseSecret> CreateRadosSecret(duckdb::ClientContext &context,
                                                         duckdb::CreateSecretInput &input) {
    const bool is_restricted = !IsVisible(context, "/", duckdb::FileType::FILE_TYPE_DIR);
    CheckNames(input);
    CheckFileAccess(context, input, is_restricted);
    auto scope = input.scope;
    if (scope.empty()) {
        scope.push_back(RADOS_SCHEME);
    }
    for (auto &prefix : scope) {
        if (!IsRadosPath(prefix)) {
            throw duckdb::InvalidInputException(
                "%s: the scope of a secret of TYPE rados is rados://, rados://<pool>/ or more of a path",
                prefix);
        }
    }
    auto secret = duckdb::make_uniq<duckdb::KeyValueSecret>(scope, input.type, input.provider, input.name);
    for (const CredentialField &field : CREDENTIAL_FIELDS) {
        secret->TrySetValue(Identifier(field.name), input);
    }
    if (is_restricted) {
        secret->secret_map[Identifier(RADOS_SECRET_RESTRICTED)] = duckdb::Value::BOOLEAN(true);
    }
    secret->redact_keys.insert(Identifier("key"));
    return std::move(secret);
}

} // namespace

void RegisterRadosSecret(duckdb::ExtensionLoader &loader) {
    duckdb::SecretType type;
    type.name = Identifier(RADOS_SECRET);
    type.deserializer = duckdb::KeyValueSecret::Deserialize<duckdb::KeyValueSecret>;
    type.default_provider = "config";
    type.extension = "rawduck_ceph";
    loader.RegisterSecretType(type);

    duckdb::CreateSecretFunction function;
    function.secret_type = RADOS_SECRET;
    function.provider = Identifier("config");
    function.function = CreateRadosSecret;
    for (const CredentialField &field : CREDENTIAL_FIELDS) {
        function.named_parameters[Identifier(field.name)] = LogicalType::VARCHAR;
    }
    loader.RegisterFunction(function);
}

} // namespace rawduck_ceph
