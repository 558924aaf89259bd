//! Secrets of TYPE rados, which name a cluster and a user.
#include "ceph/sql/functions.hpp"

#include "ceph/files/rados_connections.hpp"
#include "ceph/rados/connection/rados_path.hpp"

#include "duckdb/common/file_system.hpp"
#include "duckdb/common/string_util.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/main/secret/secret.hpp"

namespace rawduck_ceph {
namespace {

using duckdb::Identifier;
using duckdb::LogicalType;

//! librados reads these files itself, bypassing DuckDB's access settings. FileExists throws where
//! they forbid a file.
void CheckFileAccess(duckdb::ClientContext &context, const duckdb::CreateSecretInput &input) {
    for (auto *parameter : {"conf", "keyring"}) {
        const auto named = input.options.find(parameter);
        if (named == input.options.end()) {
            continue;
        }
        for (auto &path : duckdb::StringUtil::Split(named->second.ToString(), ",")) {
            duckdb::FileSystem::GetFileSystem(context).FileExists(path);
        }
    }
}

duckdb::unique_ptr<duckdb::BaseSecret> CreateRadosSecret(duckdb::ClientContext &context,
                                                         duckdb::CreateSecretInput &input) {
    CheckFileAccess(context, input);
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
