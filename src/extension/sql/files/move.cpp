//! nvme_move(source, destination): gives a file of a volume another name.
#include "extension/file_systems/settings.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/row_function.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/path.hpp"

#include "common/error.hpp"
#include "volume/registry.hpp"

#include "duckdb/common/file_system.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"

namespace rawduck {
namespace {

using duckdb::FileFlags;
using duckdb::FileLockType;
using duckdb::LogicalType;
using duckdb::Value;

struct Move {
    std::string source, destination;
    bool overwrite;
};

//! A database and its log have names that belong together, and records of their own.
void RequireNoLog(const Volume &volume, const VolumePath &path, const char *advice) {
    FileInfo log;
    if (volume.Stat(path.file + ".wal", log) && log.size > 0) {
        throw Error(ErrorCode::INVALID, path.ToString() + ": there is a write-ahead log beside it, " +
                                            path.file + ".wal: " + advice);
    }
}

Move CheckedMove(duckdb::FileSystem &files, const Arguments &arguments) {
    Move move{arguments.Text(0, "source"), arguments.Text(1, "destination"),
              arguments.NamedFlag("overwrite")};
    for (const std::string *path : {&move.source, &move.destination}) {
        if (!IsVolumePath(*path)) {
            throw Error(ErrorCode::INVALID,
                        *path + ": nvme_move renames files of volumes: nvme://<target>/<name>; "
                                "nvme_copy (rawduck cp) copies to and from other places");
        }
        files.FileExists(*path); // throws when DuckDB's settings forbid it
        const VolumePath parts = SplitVolumePath(*path);
        CheckFileName(parts.target, parts.file);
    }
    return move;
}

Rows MoveRow(duckdb::ClientContext &context, const Arguments &arguments) {
    auto &files = duckdb::FileSystem::GetFileSystem(context);
    const Move move = CheckedMove(files, arguments);
    const VolumePath from = SplitVolumePath(move.source), to = SplitVolumePath(move.destination);
    const MountOptions options = MountOptionsOf(duckdb::ClientData::Get(context).file_opener.get());
    const VolumePin volume = PinVolume(from.target, options), other = PinVolume(to.target, options);
    if (&*volume != &*other) {
        throw Error(ErrorCode::INVALID, move.source + ": cannot move it to another volume (" +
                                            move.destination +
                                            "); nvme_copy it (rawduck cp), then nvme_remove it (rawduck rm)");
    }
    const auto flags = FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_WRITE | FileLockType::WRITE_LOCK;
    // Whoever has it attached goes on to make logs under the name that it had.
    const auto source = files.OpenFile(move.source, flags);
    RequireNoLog(*volume, from,
                 "it holds what is not yet in the file. ATTACH the database, CHECKPOINT and "
                 "DETACH it, then move it");
    if (from.file == to.file) {
        return {{Value(move.source), Value(move.destination)}};
    }
    RequireNoLog(*volume, to,
                 "it would be replayed into what is moved there. ATTACH and DETACH that database "
                 "first, or remove its log");
    const bool replaces = volume->FileExists(to.file);
    if (replaces && !move.overwrite) {
        throw Error(ErrorCode::EXISTS, move.destination + ": it exists already; choose another name or pass "
                                                          "overwrite := true (rawduck mv: --overwrite)");
    }
    const auto replaced = replaces ? files.OpenFile(move.destination, flags) : nullptr;
    volume->Move(from.file, to.file, replaces ? MoveMode::REPLACE_OWN : MoveMode::NEW_NAME);
    return {{Value(move.source), Value(move.destination)}};
}

} // namespace

void RegisterMoveFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("source", LogicalType::VARCHAR);
    signature.AddParameter("destination", LogicalType::VARCHAR);
    signature.AddKeywordOnly("overwrite", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    RegisterRowFunction(
        loader, {"nvme_move",
                 "Gives a file another name on its volume, at once and durably; nothing is copied. "
                 "overwrite: replace what has that name.",
                 "CALL nvme_move('nvme:///dev/nvme0n1/new.duckdb', 'nvme:///dev/nvme0n1/sales.duckdb')",
                 signature,
                 {{"source", LogicalType::VARCHAR, "The path that it had"},
                  {"destination", LogicalType::VARCHAR, "The path that it has"}},
                 MoveRow});
}

} // namespace rawduck
