//! nvme_send(source, stream): Sender as a table function.
#include "extension/file_systems/settings.hpp"
#include "extension/sql/backup/piece_function.hpp"
#include "extension/sql/backup/stream_argument.hpp"
#include "extension/sql/functions.hpp"
#include "volume/backup/sender.hpp"
#include "volume/names/snapshot_name.hpp"

#include "duckdb/main/client_data.hpp"

namespace rawduck {
namespace {

using duckdb::ClientContext;
using duckdb::LogicalType;
using duckdb::Value;

class SendWork final : public PieceWork {
  public:
    SendWork(ClientContext &context, const Arguments &arguments) {
        const StreamArgument stream(context, arguments.Text(1, "stream"));
        const VolumePath path = AllowedVolumePath(context, arguments.Text(0, "source"));
        const SendOptions options{arguments.NamedText("since", ""), arguments.NamedText("resume", "")};
        if (!options.since.empty()) {
            const SnapshotName name = SplitSnapshotName(path.file);
            AllowedVolumePath(context,
                              VolumePath{path.target, SnapshotFileName(name.file, options.since)}.ToString());
        }
        const MountOptions mount = MountOptionsOf(duckdb::ClientData::Get(context).file_opener.get());
        sender_ = std::make_unique<Sender>(path.target, path.file, options, mount);
        sink_ = stream.OpenSink(); // last: what was refused has made no file
        all_bytes_ = sender_->Header().data_bytes;
        const StreamHeader &header = sender_->Header();
        snapshot_ = header.snapshot.Name();
        base_ = header.incremental ? header.base.Name() : "";
    }

    bool DoPiece() override {
        const bool more = sender_->SendPiece(*sink_);
        done_bytes_ = sender_->DataBytes();
        stream_bytes_ = sender_->StreamBytes();
        return more;
    }
    duckdb::vector<Value> Row() const override {
        return {Value(snapshot_), TextOrNull(base_), Value::UBIGINT(done_bytes_),
                Value::UBIGINT(stream_bytes_)};
    }
    void Release() override {
        sink_.reset();
        sender_.reset();
    }

  private:
    std::unique_ptr<Sender> sender_;
    std::unique_ptr<ByteSink> sink_;
    std::string snapshot_, base_;
    uint64_t stream_bytes_ = 0;
};

} // namespace

void RegisterSendFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("source", LogicalType::VARCHAR);
    signature.AddParameter("stream", LogicalType::VARCHAR);
    signature.AddKeywordOnly("since", LogicalType::VARCHAR, Value(LogicalType::VARCHAR));
    signature.AddKeywordOnly("resume", LogicalType::VARCHAR, Value(LogicalType::VARCHAR));
    RegisterPieceFunction(
        loader,
        {"nvme_send",
         "Writes a snapshot, of a database with its log, to a new file, to Ceph (rados://<pool>/<name>) or a "
         "descriptor (fd:1), for nvme_receive; while others "
         "write to the volume. since: only what differs from this snapshot of the same file is read and "
         "written. resume: "
         "where an earlier stream was cut off, as nvme_received says",
         "CALL nvme_send('nvme:///dev/nvme0n1/sales.duckdb@tuesday', '/backup/tuesday', since := 'monday')",
         signature,
         {{"snapshot", LogicalType::VARCHAR, "What was sent, by the name that it was made with"},
          {"base", LogicalType::VARCHAR, "What it is the difference from; NULL: all was sent"},
          {"bytes", LogicalType::UBIGINT, "Read from the volume and sent"},
          {"stream_bytes", LogicalType::UBIGINT, "Written, with what tells of them"}},
         [](ClientContext &context, const Arguments &arguments) -> std::unique_ptr<PieceWork> {
             return std::make_unique<SendWork>(context, arguments);
         }});
}

} // namespace rawduck
