//! nvme_move(source, destination): gives a file of a volume another name.
#include "extension/file_systems/sandbox.hpp"
#include "extension/file_systems/settings.hpp"
#include "extension/sql/files/kept_volumes.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/row_function.hpp"
#include "volume/names/file_name.hpp"
#include "volume/names/path.hpp"

#include "common/error.hpp"
#include "io/resolve_volume.hpp"
#include "target/target.hpp"
#include "volume/requests/here_or_ask.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

struct Move {
    std::string source, destination;
    bool overwrite;
};

Move CheckedMove(duckdb::ClientContext &context, const Arguments &arguments) {
    const Sandbox sandbox(duckdb::ClientData::Get(context).file_opener.get());
    Move move{arguments.Text(0, "source"), arguments.Text(1, "destination"),
              arguments.NamedFlag("overwrite")};
    for (const std::string *path : {&move.source, &move.destination}) {
        if (!IsVolumePath(*path)) {
            throw Error(ErrorCode::INVALID,
                        *path + ": nvme_move renames files of volumes: nvme://<target>/<name>; "
                                "nvme_copy (rawduck cp) copies to and from other places");
        }
        sandbox.RequireFile(*path);
        const VolumePath parts = SplitVolumePath(*path);
        CheckFileName(parts.target, parts.file);
    }
    return move;
}

Rows MoveRow(duckdb::ClientContext &context, const Arguments &arguments) {
    const Move move = CheckedMove(context, arguments);
    const VolumePath from = SplitVolumePath(move.source), to = SplitVolumePath(move.destination);
    if (!IsSameVolume(from.target, to.target)) {
        throw Error(ErrorCode::INVALID, move.source + ": cannot move it to another volume (" +
                                            move.destination +
                                            "); nvme_copy it (rawduck cp), then nvme_remove it (rawduck rm)");
    }
    VolumePin mounted;
    DoHereOrAsk(from.target, {WriterRequest::Kind::RENAME, move.overwrite ? 1U : 0U, from.file, to.file},
                MountOptionsOf(duckdb::ClientData::Get(context).file_opener.get()), &mounted);
    KeepUntilCommit(context, mounted);
    return {{Value(move.source), Value(move.destination)}};
}

} // namespace

void RegisterMoveFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("source", LogicalType::VARCHAR);
    signature.AddParameter("destination", LogicalType::VARCHAR);
    signature.AddKeywordOnly("overwrite", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    RegisterRowFunction(
        loader,
        {"nvme_move",
         "Gives a file, a database with its logs, another name on its volume, at once and durably, beside "
         "a writer, too; nothing is copied. overwrite: replace what has that name.",
         "CALL nvme_move('nvme:///dev/nvme0n1/new.duckdb', 'nvme:///dev/nvme0n1/sales.duckdb')",
         signature,
         {{"source", LogicalType::VARCHAR, "The path that it had"},
          {"destination", LogicalType::VARCHAR, "The path that it has"}},
         MoveRow});
}

} // namespace rawduck
