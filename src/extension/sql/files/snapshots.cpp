//! nvme_snapshot(path, name), nvme_clone(source, destination), nvme_snapshots(target) and nvme_drop_snapshot(path).
#include "extension/file_systems/sandbox.hpp"
#include "extension/file_systems/settings.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"
#include "extension/sql/volume_rows.hpp"

#include "common/error.hpp"
#include "io/resolve_volume.hpp"
#include "volume/names/path.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/requests/here_or_ask.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"

namespace rawduck {
namespace {

using duckdb::ClientContext;
using duckdb::LogicalType;
using duckdb::Value;

//! A file of a volume that DuckDB's settings allow.
VolumePath AllowedFile(ClientContext &context, const std::string &name) {
    if (!IsVolumePath(name)) {
        throw Error(ErrorCode::INVALID,
                    name + ": snapshots and clones are of files on volumes: nvme://<target>/<name>");
    }
    Sandbox(duckdb::ClientData::Get(context).file_opener.get()).RequireFile(name);
    return SplitVolumePath(name);
}

void Change(ClientContext &context, const VolumePath &path, WriterRequest::Kind kind,
            const std::string &argument = "") {
    DoHereOrAsk(path.target, {kind, 0, path.file, argument},
                MountOptionsOf(duckdb::ClientData::Get(context).file_opener.get()));
}

Rows SnapshotRow(ClientContext &context, const Arguments &arguments) {
    const std::string path = arguments.Text(0, "path"), name = arguments.Text(1, "name");
    CheckSnapshotName(name);
    const VolumePath place = AllowedFile(context, path),
                     snapshot = AllowedFile(context, SnapshotFileName(path, name));
    Change(context, place, WriterRequest::Kind::SNAPSHOT, name);
    return {{Value(snapshot.ToString())}};
}

Rows CloneRow(ClientContext &context, const Arguments &arguments) {
    const std::string from = arguments.Text(0, "source"), to = arguments.Text(1, "destination");
    const VolumePath source = AllowedFile(context, from), destination = AllowedFile(context, to);
    if (!IsSameVolume(source.target, destination.target)) {
        throw Error(ErrorCode::INVALID,
                    from + ": a clone shares its space, so it cannot be on another volume (" + to +
                        "); CALL nvme_copy(source, destination) copies");
    }
    Change(context, source, WriterRequest::Kind::CLONE, destination.file);
    return {{Value(destination.ToString())}};
}

Rows DropRow(ClientContext &context, const Arguments &arguments) {
    const VolumePath place = AllowedFile(context, arguments.Text(0, "path"));
    Change(context, place, WriterRequest::Kind::DROP_SNAPSHOT);
    return {{Value(place.ToString())}};
}

Rows SnapshotRows(ClientContext &context, const Arguments &arguments) {
    return RowsOfVolume(context, AllowedTarget(context, arguments), "nvme_snapshots");
}

} // namespace

Rows SnapshotsOf(const Volume &volume) {
    const std::string target = volume.Info().target;
    Rows rows;
    for (const SnapshotInfo &snapshot : volume.Snapshots()) {
        const std::string file = SnapshotFileName(snapshot.file, snapshot.snapshot);
        rows.push_back({Value(snapshot.file), Value(snapshot.snapshot),
                        Value(VolumePath{target, file}.ToString()), Value(FileKindName(snapshot.kind)),
                        Value::UBIGINT(snapshot.size), Value::UBIGINT(snapshot.not_shared),
                        Value::TIMESTAMP(duckdb::timestamp_t(snapshot.created_us))});
    }
    return rows;
}

void RegisterSnapshotFunctions(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature snapshot, clone, drop;
    snapshot.AddParameter("path", LogicalType::VARCHAR);
    snapshot.AddParameter("name", LogicalType::VARCHAR);
    RegisterRowFunction(
        loader,
        {"nvme_snapshot",
         "Keeps a file as it is durable now, of a database its logs, too, while others write: at once and "
         "whatever its size. ATTACH '<path>@<name>' (READ_ONLY) reads it",
         "CALL nvme_snapshot('nvme:///dev/nvme0n1/sales.duckdb', 'monday')",
         snapshot,
         {{"snapshot", LogicalType::VARCHAR, "The path of the snapshot"}},
         SnapshotRow});
    clone.AddParameter("source", LogicalType::VARCHAR);
    clone.AddParameter("destination", LogicalType::VARCHAR);
    RegisterRowFunction(
        loader,
        {"nvme_clone",
         "Makes a database of its own of a snapshot, or of another one as it is durable now: at once, and "
         "on the same volume, whose space both share until one of them changes",
         "CALL nvme_clone('nvme:///dev/nvme0n1/sales.duckdb@monday', 'nvme:///dev/nvme0n1/trial.duckdb')",
         clone,
         {{"clone", LogicalType::VARCHAR, "The path of the new file"}},
         CloneRow});
    drop.AddParameter("path", LogicalType::VARCHAR);
    RegisterRowFunction(loader, {"nvme_drop_snapshot",
                                 "Gives up a snapshot, and frees the space that nothing else has",
                                 "CALL nvme_drop_snapshot('nvme:///dev/nvme0n1/sales.duckdb@monday')",
                                 drop,
                                 {{"dropped", LogicalType::VARCHAR, "The path"}},
                                 DropRow});
    RegisterRowFunction(
        loader, {"nvme_snapshots",
                 "The snapshots on a volume",
                 "SELECT file, snapshot, held FROM nvme_snapshots('/dev/nvme0n1')",
                 TargetSignature(),
                 {{"file", LogicalType::VARCHAR, "What it is of"},
                  {"snapshot", LogicalType::VARCHAR, "Its name"},
                  {"path", LogicalType::VARCHAR, "For ATTACH and nvme_clone"},
                  {"kind", LogicalType::VARCHAR, "database or other"},
                  {"size", LogicalType::UBIGINT, "Bytes of the file, and of its logs"},
                  {"held", LogicalType::UBIGINT, "Bytes that nothing else has: what dropping it frees"},
                  {"created", LogicalType::TIMESTAMP, "When it was made, in UTC"}},
                 SnapshotRows});
}

} // namespace rawduck
