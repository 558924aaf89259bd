//! nvme_format(target, ...): writes an empty volume. nvme_grow(target, ...): makes one as large as its target.
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

FormatOptions OptionsOf(const Arguments &arguments) {
    FormatOptions options;
    options.size_bytes = ParseSize(arguments.NamedText("size", "0"), "size");
    options.lba_size = static_cast<uint32_t>(ParseSize(arguments.NamedText("lba_size", "0"), "lba_size"));
    options.force = arguments.NamedFlag("force");
    options.label = arguments.NamedText("label", "");
    return options;
}

Rows FormatRow(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string target = AllowedTarget(context, arguments);
    Volume::Format(target, OptionsOf(arguments));
    auto opener = duckdb::ClientData::Get(context).file_opener.get();
    const VolumeInfo info = PinVolume(target, MountOptionsOf(opener))->Info();
    return {{Value(info.target), Value(info.uuid), Value::UBIGINT(info.capacity_bytes),
             Value::UBIGINT(info.lba_size)}};
}

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

void RegisterFormatFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature = TargetSignature();
    // Any type, so that both '8G' and 8589934592 are a size.
    signature.AddKeywordOnly("size", LogicalType::ANY, Value(LogicalType::VARCHAR));
    signature.AddKeywordOnly("lba_size", LogicalType::ANY, Value(LogicalType::VARCHAR));
    signature.AddKeywordOnly("force", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    signature.AddKeywordOnly("label", LogicalType::VARCHAR, Value(""));
    RegisterRowFunction(loader,
                        {"nvme_format",
                         "Writes an empty volume to a device, or to a file of the given size. Refuses a "
                         "target that holds something. size: such as '8G', of a file or a volume in memory; "
                         "NULL: as it is. lba_size: 512 or 4096; NULL: the device's, 4096 for files. force: "
                         "destroy what is there, but nothing that is mounted. label: at most 63 bytes.",
                         "CALL nvme_format('/data/store.rawduck', size := '8G')",
                         signature,
                         {{"target", LogicalType::VARCHAR, "The target"},
                          {"uuid", LogicalType::VARCHAR, "Of the new volume"},
                          {"capacity", LogicalType::UBIGINT, "Its bytes"},
                          {"lba_size", LogicalType::UBIGINT, "Bytes of one of its LBAs"}},
                         FormatRow});
}

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
