//! nvme_fdp(target): flexible data placement, as the device tells it and as a volume uses it.
#include "extension/file_systems/settings.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"

#include "io/device/nvme_fdp.hpp"
#include "io/resolve_volume.hpp"
#include "volume/registry.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"
#include "io/open_device.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

//! Of the volume that is mounted, or what a mount with these options would choose.
PlacementMap MapOf(const Target &target, const MountOptions &options) {
    if (VolumePin volume = MountedVolume(target.identity)) {
        return volume->Placement();
    }
    const Capabilities caps = OpenDevice(target, DeviceOptionsOf(options))->Caps();
    return MapPlacement(options.io.placement, caps.placements, caps.placement_obstacle, target.name);
}

struct Placed {
    duckdb::vector<Value> classes;
    uint64_t written_bytes = 0;
};

Placed PlacedAt(PlacementId id, const PlacementMap &map, const IoStats &stats) {
    Placed placed;
    for (size_t i = 0; i < PLACEMENT_CLASS_COUNT; i++) {
        const auto placement_class = static_cast<PlacementClass>(i);
        if (map[placement_class] == id) {
            placed.classes.emplace_back(PlacementClassName(placement_class));
            placed.written_bytes += stats.OfClass(IoOperation::WRITE, placement_class);
        }
    }
    return placed;
}

Rows FdpRows(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string name = AllowedTarget(context, arguments);
    const FdpState state = InspectFdp(ResolveTarget(name));
    const Target target = ResolveVolume(name, Headers::NOW);
    const FdpStatistics &device = state.statistics;
    auto opener = duckdb::ClientData::Get(context).file_opener.get();
    const PlacementMap map = MapOf(target, MountOptionsOf(opener));
    const auto stats = StatsFor(target.identity, target.name);
    Rows rows;
    for (const PlacementHandle &handle : state.handles) {
        Placed placed = PlacedAt(handle.placement, map, *stats);
        rows.push_back({Value::UBIGINT(static_cast<uint16_t>(handle.placement)),
                        Value::UBIGINT(handle.reclaim_unit_handle),
                        Value::LIST(LogicalType::VARCHAR, std::move(placed.classes)),
                        Value::UBIGINT(placed.written_bytes), Value::UBIGINT(handle.remaining_bytes),
                        Value::UBIGINT(device.host_bytes), Value::UBIGINT(device.media_bytes),
                        Value::UBIGINT(device.erased_bytes),
                        device.host_bytes == 0 ? Value(LogicalType::DOUBLE)
                                               : Value::DOUBLE(static_cast<double>(device.media_bytes) /
                                                               static_cast<double>(device.host_bytes))});
    }
    return rows;
}

} // namespace

void RegisterFdpFunction(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(
        loader,
        {"nvme_fdp",
         "Flexible data placement of an NVMe namespace: its placement identifiers, what "
         "is placed where, and the device's own statistics",
         "SELECT placement, classes, written, write_amplification FROM "
         "nvme_fdp('/dev/ng0n1')",
         TargetSignature(),
         {{"placement", LogicalType::UBIGINT, "The placement identifier"},
          {"reclaim_unit_handle", LogicalType::UBIGINT, "The device's name for it"},
          {"classes", LogicalType::LIST(LogicalType::VARCHAR),
           "Classes of data that the volume places there"},
          {"written", LogicalType::UBIGINT, "Bytes that this process has written there"},
          {"remaining", LogicalType::UBIGINT, "Bytes until the device begins its next reclaim unit"},
          {"device_host_bytes", LogicalType::UBIGINT, "Bytes that hosts have written to the endurance group"},
          {"device_media_bytes", LogicalType::UBIGINT, "Bytes that the device has written to its media"},
          {"device_erased_bytes", LogicalType::UBIGINT, "Bytes that it has erased"},
          {"write_amplification", LogicalType::DOUBLE, "Media bytes for each host byte"}},
         FdpRows});
}

} // namespace rawduck
