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

using duckdb::Value;

//! A column of a row about a volume, and its value.
struct Cell {
    const char *name;
    Value value;
};

std::vector<Cell> Cells(const VolumeInfo &info) {
    return {{"target", Value(info.target)},
            {"uuid", Value(info.uuid)},
            {"label", Value(info.label)},
            {"engine", Value(info.engine)},
            {"engine_reason", Value(info.engine_reason)},
            {"queue_mode", Value(info.queue_mode)},
            {"queue_depth", Value::UBIGINT(info.queue_depth)},
            {"lba_size", Value::UBIGINT(info.lba_size)},
            {"memory_alignment", Value::UBIGINT(info.memory_alignment)},
            {"capacity", Value::UBIGINT(info.capacity_bytes)},
            {"used", Value::UBIGINT(info.used_bytes)},
            {"free", Value::UBIGINT(info.free_bytes)},
            {"largest_free_extent", Value::UBIGINT(info.largest_free_extent_bytes)},
            {"metadata_bytes", Value::UBIGINT(info.metadata_bytes)},
            {"files", Value::UBIGINT(info.files)},
            {"extents", Value::UBIGINT(info.extents)},
            {"open_handles", Value::UBIGINT(info.open_handles)},
            {"writable", Value::BOOLEAN(info.writable)},
            {"volatile_write_cache", Value::BOOLEAN(info.volatile_write_cache)},
            {"placement", Value(info.placement)},
            {"polling", Value(info.polling)},
            {"deallocate", Value(info.deallocate)},
            {"epoch", Value::UBIGINT(info.epoch)},
            {"log_bytes", Value::UBIGINT(info.log_bytes)},
            {"log_records", Value::UBIGINT(info.log_records)},
            {"mount_ms", Value::DOUBLE(info.mount_ms)},
            {"bounce_buffer_bytes", Value::UBIGINT(info.bounce_bytes)},
            {"reread_buffer_bytes", Value::UBIGINT(info.reread_buffer_bytes)},
            {"rereads", Value::UBIGINT(info.rereads.reads)},
            {"rereads_from_memory", Value::UBIGINT(info.rereads.hits)},
            {"spill_buffer_bytes", Value::UBIGINT(info.spill_buffer_bytes)},
            {"spill_reads", Value::UBIGINT(info.spill.reads)},
            {"spill_reads_from_memory", Value::UBIGINT(info.spill.hits)},
            {"spill_blocks_read_ahead", Value::UBIGINT(info.spill.ahead)},
            {"spill_blocks_read_in_vain", Value::UBIGINT(info.spill.unused)},
            {"warning", TextOrNull(info.warning)},
            {"poisoned", TextOrNull(info.poisoned)}};
}

//! The names and types of the same cells.
std::vector<Column> VolumeColumns() {
    std::vector<Column> columns;
    for (auto &cell : Cells(VolumeInfo())) {
        columns.push_back({cell.name, cell.value.type()});
    }
    return columns;
}

duckdb::vector<Value> VolumeRow(const VolumeInfo &info) {
    duckdb::vector<Value> row;
    for (auto &cell : Cells(info)) {
        row.push_back(std::move(cell.value));
    }
    return row;
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
