//! nvme_files(target) and nvme_remove(path).
#include "extension/file_systems/sandbox.hpp"
#include "extension/file_systems/settings.hpp"
#include "extension/sql/files/kept_volumes.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"
#include "extension/sql/volume_rows.hpp"
#include "volume/names/path.hpp"
#include "volume/requests/here_or_ask.hpp"

#include "common/error.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

LogicalType ExtentType() {
    return LogicalType::STRUCT({{"file_offset", LogicalType::UBIGINT},
                                {"lba", LogicalType::UBIGINT},
                                {"lba_count", LogicalType::UBIGINT}});
}

Value ExtentList(const FileInfo &file, uint64_t lba_size) {
    duckdb::vector<Value> extents;
    for (auto &extent : file.extents) {
        extents.push_back(Value::STRUCT({{"file_offset", Value::UBIGINT(extent.file_offset)},
                                         {"lba", Value::UBIGINT(extent.device_offset / lba_size)},
                                         {"lba_count", Value::UBIGINT(extent.length / lba_size)}}));
    }
    return Value::LIST(ExtentType(), std::move(extents));
}

Rows FileRows(duckdb::ClientContext &context, const Arguments &arguments) {
    return RowsOfVolume(context, AllowedTarget(context, arguments), "nvme_files");
}

Rows RemoveRow(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string path = arguments.Text(0, "path");
    if (!IsVolumePath(path)) {
        throw Error(ErrorCode::INVALID,
                    path + ": nvme_remove removes files of volumes: nvme://<target>/<name>");
    }
    auto opener = duckdb::ClientData::Get(context).file_opener.get();
    Sandbox(opener).RequireFile(path);
    const VolumePath place = SplitVolumePath(path);
    VolumePin mounted;
    const std::string answer = DoHereOrAsk(place.target, {WriterRequest::Kind::REMOVE, 0, place.file, ""},
                                           MountOptionsOf(opener), &mounted);
    KeepUntilCommit(context, mounted);
    Rows rows;
    for (const std::string &name : NamesIn(answer)) {
        rows.push_back({Value(VolumePath{place.target, name}.ToString())});
    }
    if (rows.empty()) { // somebody who has ended has done it before he could say what it was
        rows.push_back({Value(path)});
    }
    return rows;
}

} // namespace

Rows FilesOf(const Volume &volume) {
    const uint64_t lba_size = volume.Info().lba_size;
    Rows rows;
    for (auto &file : volume.Files()) {
        rows.push_back(
            {Value(file.name), Value(FileKindName(file.kind)), Value::UBIGINT(file.size),
             Value::UBIGINT(file.allocated), Value::TIMESTAMP(duckdb::timestamp_t(file.modified_us)),
             Value::BOOLEAN(file.snapshot), Value::INTEGER(static_cast<int32_t>(file.extents.size())),
             ExtentList(file, lba_size)});
    }
    return rows;
}

void RegisterFileFunctions(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(
        loader,
        {"nvme_files",
         "The files of a volume and where they lie",
         "SELECT name, size FROM nvme_files('/dev/nvme0n1')",
         TargetSignature(),
         {{"name", LogicalType::VARCHAR, "Without the target"},
          {"kind", LogicalType::VARCHAR, "database, wal, temp, other or directory"},
          {"size", LogicalType::UBIGINT, "Bytes of the file"},
          {"allocated", LogicalType::UBIGINT, "Bytes that it takes on the target"},
          {"modified", LogicalType::TIMESTAMP, "When it was written last, in UTC"},
          {"snapshot", LogicalType::BOOLEAN, "Whether it belongs to a snapshot, and nothing writes to it"},
          {"extents", LogicalType::INTEGER, "How many pieces it lies in"},
          {"extent_list", LogicalType::LIST(ExtentType()), "These, by their place in the file"}},
         FileRows});
    duckdb::FunctionSignature signature;
    signature.AddParameter("path", LogicalType::VARCHAR);
    RegisterRowFunction(
        loader, {"nvme_remove",
                 "Removes a file from a volume, a database with its logs, at once and for good; beside a "
                 "writer, too. A transaction (BEGIN ... COMMIT) takes nothing back; until it ends the "
                 "volume stays open for writing, which makes removing many files faster.",
                 "CALL nvme_remove('nvme:///dev/nvme0n1/old.duckdb')",
                 signature,
                 {{"removed", LogicalType::VARCHAR, "The path; of a database with logs, theirs, too"}},
                 RemoveRow});
}

} // namespace rawduck
