//! nvme_volumes() and nvme_info(target): one row per volume.
#include "extension/file_systems/sandbox.hpp"
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

std::vector<Column> VolumeColumns() {
    return {{"target", LogicalType::VARCHAR},
            {"uuid", LogicalType::VARCHAR},
            {"label", LogicalType::VARCHAR},
            {"engine", LogicalType::VARCHAR},
            {"engine_reason", LogicalType::VARCHAR},
            {"queue_mode", LogicalType::VARCHAR},
            {"queue_depth", LogicalType::UBIGINT},
            {"lba_size", LogicalType::UBIGINT},
            {"memory_alignment", LogicalType::UBIGINT},
            {"capacity", LogicalType::UBIGINT},
            {"used", LogicalType::UBIGINT},
            {"free", LogicalType::UBIGINT},
            {"largest_free_extent", LogicalType::UBIGINT},
            {"metadata_bytes", LogicalType::UBIGINT},
            {"files", LogicalType::UBIGINT},
            {"extents", LogicalType::UBIGINT},
            {"open_handles", LogicalType::UBIGINT},
            {"writable", LogicalType::BOOLEAN},
            {"volatile_write_cache", LogicalType::BOOLEAN},
            {"placement", LogicalType::VARCHAR},
            {"polling", LogicalType::VARCHAR},
            {"deallocate", LogicalType::VARCHAR},
            {"epoch", LogicalType::UBIGINT},
            {"log_bytes", LogicalType::UBIGINT},
            {"log_records", LogicalType::UBIGINT},
            {"mount_ms", LogicalType::DOUBLE},
            {"bounce_buffer_bytes", LogicalType::UBIGINT},
            {"reread_buffer_bytes", LogicalType::UBIGINT},
            {"rereads", LogicalType::UBIGINT},
            {"rereads_from_memory", LogicalType::UBIGINT},
            {"spill_buffer_bytes", LogicalType::UBIGINT},
            {"spill_reads", LogicalType::UBIGINT},
            {"spill_reads_from_memory", LogicalType::UBIGINT},
            {"spill_blocks_read_ahead", LogicalType::UBIGINT},
            {"spill_blocks_read_in_vain", LogicalType::UBIGINT},
            {"warning", LogicalType::VARCHAR},
            {"poisoned", LogicalType::VARCHAR}};
}

duckdb::vector<Value> VolumeRow(const VolumeInfo &info) {
    return {Value(info.target),
            Value(info.uuid),
            Value(info.label),
            Value(info.engine),
            Value(info.engine_reason),
            Value(info.queue_mode),
            Value::UBIGINT(info.queue_depth),
            Value::UBIGINT(info.lba_size),
            Value::UBIGINT(info.memory_alignment),
            Value::UBIGINT(info.capacity_bytes),
            Value::UBIGINT(info.used_bytes),
            Value::UBIGINT(info.free_bytes),
            Value::UBIGINT(info.largest_free_extent_bytes),
            Value::UBIGINT(info.metadata_bytes),
            Value::UBIGINT(info.files),
            Value::UBIGINT(info.extents),
            Value::UBIGINT(info.open_handles),
            Value::BOOLEAN(info.writable),
            Value::BOOLEAN(info.volatile_write_cache),
            Value(info.placement),
            Value(info.polling),
            Value(info.deallocate),
            Value::UBIGINT(info.epoch),
            Value::UBIGINT(info.log_bytes),
            Value::UBIGINT(info.log_records),
            Value::DOUBLE(info.mount_ms),
            Value::UBIGINT(info.bounce_bytes),
            Value::UBIGINT(info.reread_buffer_bytes),
            Value::UBIGINT(info.rereads.reads),
            Value::UBIGINT(info.rereads.hits),
            Value::UBIGINT(info.spill_buffer_bytes),
            Value::UBIGINT(info.spill.reads),
            Value::UBIGINT(info.spill.hits),
            Value::UBIGINT(info.spill.ahead),
            Value::UBIGINT(info.spill.unused),
            TextOrNull(info.warning),
            TextOrNull(info.poisoned)};
}

Rows MountedRows(duckdb::ClientContext &context, const Arguments &) {
    const Sandbox sandbox(context);
    Rows rows;
    for (auto &volume : MountedVolumes()) {
        const VolumeInfo info = volume->Info();
        if (sandbox.MaySeeVolume(info.target)) {
            rows.push_back(VolumeRow(info));
        }
    }
    return rows;
}

Rows InfoRow(duckdb::ClientContext &context, const Arguments &arguments) {
    auto opener = duckdb::ClientData::Get(context).file_opener.get();
    auto volume = PinVolume(AllowedTarget(context, arguments), MountOptionsOf(opener));
    return {VolumeRow(volume->Info())};
}

} // namespace

void RegisterVolumeFunctions(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(loader, {"nvme_volumes", "The volumes that this process has mounted",
                                 "SELECT target, used, free FROM nvme_volumes()", duckdb::FunctionSignature(),
                                 VolumeColumns(), MountedRows});
    RegisterRowFunction(loader,
                        {"nvme_info", "What is known of one volume, which is mounted for it if need be",
                         "FROM nvme_info('/dev/nvme0n1')", TargetSignature(), VolumeColumns(), InfoRow});
}

} // namespace rawduck
