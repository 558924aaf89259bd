//! nvme_devices(): the block devices of the machine and whether they are free to use.
#include "extension/file_systems/sandbox.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/row_function.hpp"

#include "target/inspect.hpp"
#include "target/occupants/occupants.hpp"
#include "target/target.hpp"

#include <algorithm>

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

Value OccupantList(const std::vector<Occupant> &occupants) {
    duckdb::vector<Value> clauses;
    for (auto &occupant : occupants) {
        clauses.emplace_back(occupant.what);
    }
    return Value::LIST(LogicalType::VARCHAR, std::move(clauses));
}

bool IsBusy(const std::vector<Occupant> &occupants) {
    return std::any_of(occupants.begin(), occupants.end(),
                       [](const Occupant &occupant) { return !occupant.forceable; });
}

LogicalType NvmeType() {
    return LogicalType::STRUCT({{"namespace_id", LogicalType::UBIGINT},
                                {"passthrough", LogicalType::VARCHAR},
                                {"max_command", LogicalType::UBIGINT},
                                {"atomic_write", LogicalType::UBIGINT},
                                {"volatile_write_cache", LogicalType::BOOLEAN},
                                {"deallocate", LogicalType::BOOLEAN},
                                {"write_zeroes", LogicalType::BOOLEAN},
                                {"fdp", LogicalType::BOOLEAN}});
}

//! What the device says of itself; NULL when it is no NVMe namespace or this user may not ask it.
Value NvmeValue(const TargetInfo &info) {
    if (!info.nvme) {
        return Value(NvmeType());
    }
    const NvmeInfo &nvme = *info.nvme;
    return Value::STRUCT(NvmeType(),
                         {Value::UBIGINT(nvme.namespace_id), TextOrNull(info.passthrough_path),
                          Value::UBIGINT(info.max_passthrough_bytes), Value::UBIGINT(nvme.atomic_write_bytes),
                          Value::BOOLEAN(nvme.volatile_write_cache), Value::BOOLEAN(nvme.deallocate),
                          Value::BOOLEAN(nvme.write_zeroes), Value::BOOLEAN(nvme.fdp)});
}

Rows DeviceRows(duckdb::ClientContext &context, const Arguments &) {
    Sandbox(context).RequireMachine("nvme_devices");
    Rows rows;
    for (auto &device : ListBlockDevices()) {
        auto &info = device.info;
        rows.push_back({Value(device.path), TextOrNull(info.model), TextOrNull(info.serial),
                        TextOrNull(info.firmware), Value::UBIGINT(info.capacity_bytes),
                        Value::UBIGINT(info.lba_size), Value::UBIGINT(info.physical_block_size),
                        Value::UBIGINT(info.memory_alignment), Value::UBIGINT(info.max_transfer_bytes),
                        Value::BOOLEAN(info.volatile_write_cache), Value::BOOLEAN(info.read_only),
                        NvmeValue(info), OccupantList(device.occupants),
                        Value::BOOLEAN(IsBusy(device.occupants)), TextOrNull(device.error)});
    }
    return rows;
}

} // namespace

void RegisterDeviceFunction(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(
        loader,
        {"nvme_devices",
         "The block devices of this machine, and what stands against formatting them",
         "SELECT path, model, capacity FROM nvme_devices() WHERE len(in_use) = 0",
         duckdb::FunctionSignature(),
         {{"path", LogicalType::VARCHAR, "The device node"},
          {"model", LogicalType::VARCHAR, "Of the disk; NULL when unknown"},
          {"serial", LogicalType::VARCHAR, "Its serial number"},
          {"firmware", LogicalType::VARCHAR, "Its revision"},
          {"capacity", LogicalType::UBIGINT, "Bytes"},
          {"lba_size", LogicalType::UBIGINT, "Bytes of a logical block"},
          {"physical_block_size", LogicalType::UBIGINT, "Bytes that the disk writes at once"},
          {"memory_alignment", LogicalType::UBIGINT, "Of memory for direct I/O, in bytes"},
          {"max_transfer", LogicalType::UBIGINT, "Bytes of the largest command through the block layer"},
          {"volatile_write_cache", LogicalType::BOOLEAN,
           "Whether what was written needs a flush to be durable; true when unknown"},
          {"read_only", LogicalType::BOOLEAN, "Whether the kernel refuses writes"},
          {"nvme", NvmeType(),
           "What the NVMe namespace says of itself; NULL for other devices, and without the right to ask"},
          {"in_use", LogicalType::LIST(LogicalType::VARCHAR),
           "What stands against formatting it: mounts, partitions, file systems"},
          {"busy", LogicalType::BOOLEAN,
           "Whether somebody uses it at this moment, so that not even force formats it"},
          {"error", LogicalType::VARCHAR, "Why it could not be looked at; NULL when it could"}},
         DeviceRows});
}

} // namespace rawduck
