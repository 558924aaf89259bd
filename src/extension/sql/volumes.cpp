//! nvme_volumes() and nvme_info(target): one row per volume.
#include "extension/file_systems/sandbox.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"
#include "extension/sql/volume_rows.hpp"

#include "volume/registry.hpp"

#include "duckdb/main/client_context.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

//! A column of a row about a volume, and its value.
struct Cell {
    const char *name;
    Value value;
    const char *description;
};

duckdb::vector<Value> Texts(const std::vector<std::string> &texts) {
    return duckdb::vector<Value>(texts.begin(), texts.end());
}

std::vector<Cell> Cells(const VolumeInfo &info) {
    return {
        {"target", Value(info.target), "The target"},
        {"uuid", Value(info.uuid), "Given to the volume when it was formatted"},
        {"label", Value(info.label), "Given to it by nvme_format()"},
        {"engine", Value(info.engine), "How commands reach the device"},
        {"engine_reason", Value(info.engine_reason),
         "Why this engine, and whether threads have had to share queues"},
        {"queue_mode", Value(info.queue_mode), "How threads share the device's queues (nvme_queues)"},
        {"queue_depth", Value::UBIGINT(info.queue_depth), "Commands in flight per queue, at most"},
        {"lba_size", Value::UBIGINT(info.lba_size), "Bytes of an LBA of the volume"},
        {"memory_alignment", Value::UBIGINT(info.memory_alignment),
         "Of memory that the device reads and writes without a copy, in bytes"},
        {"capacity", Value::UBIGINT(info.capacity_bytes), "Bytes of the volume"},
        {"growable", Value::UBIGINT(info.growable_bytes),
         "Bytes of the target behind the volume, which nvme_grow() would use"},
        {"used", Value::UBIGINT(info.used_bytes), "Bytes that files have, or have reserved"},
        {"free", Value::UBIGINT(info.free_bytes), "Bytes that neither files nor metadata have"},
        {"largest_free_extent", Value::UBIGINT(info.largest_free_extent_bytes),
         "Bytes of the largest piece of it"},
        {"metadata_bytes", Value::UBIGINT(info.metadata_bytes),
         "Bytes set aside for metadata: its log, its pages, and what is kept for those"},
        {"files", Value::UBIGINT(info.files), "Files, temporary ones included"},
        {"extents", Value::UBIGINT(info.extents), "Pieces in which they lie"},
        {"open_handles", Value::UBIGINT(info.open_handles), "Open files, each as often as it is open"},
        {"writable", Value::BOOLEAN(info.writable), "Whether this process has locked the volume for writing"},
        {"volatile_write_cache", Value::BOOLEAN(info.volatile_write_cache),
         "Whether the device has to be flushed for durability"},
        {"placement", Value(info.placement),
         "The placement identifier of each class of data, or why there are none"},
        {"polling", Value(info.polling), "on, or off and why"},
        {"deallocate", Value(info.deallocate),
         "on, or off and why: whether the device is told of freed space"},
        {"epoch", Value::UBIGINT(info.epoch),
         "Of the log: in the high half which mount has begun it, in the low half its number there"},
        {"log_bytes", Value::UBIGINT(info.log_bytes), "Bytes in the metadata log"},
        {"log_records", Value::UBIGINT(info.log_records), "Records in it"},
        {"checkpoint_pending", Value::BOOLEAN(info.checkpoint_pending),
         "Whether a checkpoint of the metadata is being written, in the background"},
        {"mount_ms", Value::DOUBLE(info.mount_ms), "Milliseconds that mounting took"},
        {"bounce_buffer_bytes", Value::UBIGINT(info.bounce_bytes),
         "Memory for data whose own address the device cannot take"},
        {"reread_buffer_bytes", Value::UBIGINT(info.reread_buffer_bytes),
         "Memory that nvme_reread_buffer has taken"},
        {"rereads", Value::UBIGINT(info.rereads.reads), "Reads of blocks that had been read shortly before"},
        {"rereads_from_memory", Value::UBIGINT(info.rereads.hits), "Of those, answered from memory"},
        {"metadata_cache_bytes", Value::UBIGINT(info.metadata_cache_bytes),
         "Memory for pages of the metadata that were read or written, at most 64 MiB"},
        {"spill_buffer_bytes", Value::UBIGINT(info.spill_buffer_bytes),
         "Memory that nvme_spill_buffer has taken"},
        {"spill_buffer_capacity", Value::UBIGINT(info.spill_capacity_bytes),
         "Bytes that it may take: the setting, or with auto 28 MiB and its quarter of what was free when it "
         "was last asked "
         "for"},
        {"spill_reads", Value::UBIGINT(info.spill.reads), "Reads of spilled blocks"},
        {"spill_reads_from_memory", Value::UBIGINT(info.spill.hits), "Of those, answered from memory"},
        {"spill_blocks_read_ahead", Value::UBIGINT(info.spill.ahead), "Spilled blocks that were prefetched"},
        {"spill_blocks_read_in_vain", Value::UBIGINT(info.spill.unused),
         "Of those, evicted without having been read"},
        {"spill_bytes_given_way", Value::UBIGINT(info.spill.given_way_bytes),
         "Memory of spilled blocks that was given back because others needed it"},
        {"members", Value::LIST(LogicalType::VARCHAR, Texts(info.members)),
         "Targets that the volume is striped over, in their order; none when it lies on one"},
        {"chunk", Value::UBIGINT(info.chunk_bytes),
         "Bytes of it that lie on one of them before the next one's turn; 0 without"},
        {"warning", TextOrNull(info.warning), "Such as a damaged superblock; NULL without one"},
        {"poisoned", TextOrNull(info.poisoned), "Why the volume refuses writes; NULL when it takes them"}};
}

//! The names, types and descriptions of the same cells.
std::vector<Column> VolumeColumns() {
    std::vector<Column> columns;
    for (auto &cell : Cells(VolumeInfo())) {
        columns.push_back({cell.name, cell.value.type(), cell.description});
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
    return RowsOfVolume(context, AllowedTarget(context, arguments), "nvme_info");
}

} // namespace

Rows InfoOf(const Volume &volume) {
    return {VolumeRow(volume.Info())};
}

void RegisterVolumeFunctions(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(loader, {"nvme_volumes", "The volumes that this process has mounted",
                                 "SELECT target, used, free FROM nvme_volumes()", duckdb::FunctionSignature(),
                                 VolumeColumns(), MountedRows});
    RegisterRowFunction(loader,
                        {"nvme_info", "What is known of one volume, which is mounted for it if need be",
                         "FROM nvme_info('/dev/nvme0n1')", TargetSignature(), VolumeColumns(), InfoRow});
}

} // namespace rawduck
