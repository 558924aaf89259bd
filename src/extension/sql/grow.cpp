//! nvme_grow(target, ...): makes a volume as large as its target.
#include "common/text/size.hpp"
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

Rows GrowRow(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string target = AllowedTarget(context, arguments);
    const uint64_t size = ParseSize(arguments.NamedText("size", "0"), "size");
    auto opener = duckdb::ClientData::Get(context).file_opener.get();
    auto volume = PinVolume(target, MountOptionsOf(opener));
    const VolumeGrowth growth = volume->Grow(size);
    return {{Value(volume->Info().target), Value::UBIGINT(growth.after_bytes),
             Value::UBIGINT(growth.after_bytes - growth.before_bytes)}};
}

} // namespace

void RegisterGrowFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature = TargetSignature();
    // Any type, as that of nvme_format().
    signature.AddKeywordOnly("size", LogicalType::ANY, Value(LogicalType::VARCHAR));
    RegisterRowFunction(
        loader, {"nvme_grow",
                 "Makes a volume as large as its target, which was made larger; other connections go on "
                 "meanwhile. size: such as '200G', makes a regular file that large before, with all of its "
                 "space reserved; NULL: as it is. A volume that is as large already stays as it is.",
                 "CALL nvme_grow('/data/store.rawduck', size := '200G')",
                 signature,
                 {{"target", LogicalType::VARCHAR, "The target"},
                  {"capacity", LogicalType::UBIGINT, "Bytes that the volume has now"},
                  {"added", LogicalType::UBIGINT, "Bytes of them that it did not have before"}},
                 GrowRow});
}

} // namespace rawduck
