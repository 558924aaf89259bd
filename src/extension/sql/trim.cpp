//! nvme_trim(target): tells the device of all space of a volume that is free.
#include "extension/file_systems/settings.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"

#include "volume/registry.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

Rows TrimRow(duckdb::ClientContext &context, const Arguments &arguments) {
    auto opener = duckdb::ClientData::Get(context).file_opener.get();
    auto volume = PinVolume(AllowedTarget(context, arguments), MountOptionsOf(opener));
    const uint64_t bytes = volume->Trim();
    return {{Value(volume->Info().target), Value::UBIGINT(bytes)}};
}

} // namespace

void RegisterTrimFunction(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(loader,
                        {"nvme_trim",
                         "Tells the device which space of a volume is free, so that it need not keep it",
                         "CALL nvme_trim('/dev/nvme0n1')",
                         TargetSignature(),
                         {{"target", LogicalType::VARCHAR, "The target"},
                          {"trimmed", LogicalType::UBIGINT, "Bytes that the device was told of"}},
                         TrimRow});
}

} // namespace rawduck
