//! nvme_receive(stream, destination), nvme_verify(stream) and nvme_received(path).
#include "extension/file_systems/settings.hpp"
#include "extension/sql/backup/piece_function.hpp"
#include "extension/sql/backup/stream_argument.hpp"
#include "extension/sql/functions.hpp"
#include "volume/backup/local_destination.hpp"
#include "volume/backup/volume_destination.hpp"
#include "volume/names/file_name.hpp"

#include "common/error.hpp"

#include "duckdb/main/client_data.hpp"

namespace rawduck {
namespace {

using duckdb::ClientContext;
using duckdb::LogicalType;
using duckdb::Value;

VolumePin PinOf(ClientContext &context, const VolumePath &path) {
    return PinVolume(path.target, MountOptionsOf(duckdb::ClientData::Get(context).file_opener.get()));
}

std::unique_ptr<Destination> OpenDestination(ClientContext &context, const std::string &path,
                                             bool overwrite) {
    if (IsVolumePath(path)) {
        const VolumePath parts = AllowedVolumePath(context, path);
        CheckFileName(parts.target, parts.file);
        AllowedVolumePath(context, path + ".receiving");
        return std::make_unique<VolumeDestination>(PinOf(context, parts), parts.file, overwrite,
                                                   [&context] { return context.IsInterrupted(); });
    }
    if (overwrite) {
        throw Error(ErrorCode::INVALID,
                    path + ": a restore to an ordinary file replaces nothing; name a new one");
    }
    const std::string local = AllowedLocalPath(context, path);
    AllowedLocalPath(context, local + ".receiving");
    return std::make_unique<LocalDestination>(local);
}

class ReceiveWork final : public PieceWork {
  public:
    ReceiveWork(ClientContext &context, const Arguments &arguments)
        : path_(arguments.Text(1, "destination")) {
        const StreamArgument stream(context, arguments.Text(0, "stream"));
        auto destination = OpenDestination(context, path_, arguments.NamedFlag("overwrite"));
        receiver_ = std::make_unique<Receiver>(stream.OpenSource(), std::move(destination));
    }
    bool DoPiece() override {
        const bool more = receiver_->ReceivePiece();
        all_bytes_ = receiver_->Header().data_bytes;
        done_bytes_ = receiver_->DataBytes();
        return more;
    }
    duckdb::vector<Value> Row() const override {
        const StreamHeader &header = receiver_->Header();
        return {Value(path_), Value(header.snapshot.Name()),
                TextOrNull(header.incremental ? header.base.Name() : ""),
                Value::UBIGINT(receiver_->WrittenBytes())};
    }
    void Release() override { receiver_.reset(); }

  private:
    const std::string path_;
    std::unique_ptr<Receiver> receiver_;
};

class VerifyWork final : public PieceWork {
  public:
    VerifyWork(ClientContext &context, const Arguments &arguments)
        : source_(StreamArgument(context, arguments.Text(0, "stream")).OpenSource()) {}
    bool DoPiece() override {
        if (!reader_) {
            reader_ = std::make_unique<StreamReader>(*source_);
            all_bytes_ = reader_->Header().data_bytes;
            return true;
        }
        const bool more = reader_->Next().has_value();
        done_bytes_ = reader_->DataBytes();
        return more;
    }
    duckdb::vector<Value> Row() const override {
        const StreamHeader &header = reader_->Header();
        uint64_t size = 0;
        for (const StreamFile &file : header.files) {
            size += file.size;
        }
        const bool rest = !(header.from == StreamPosition());
        return {Value(header.snapshot.Name()),
                Value::TIMESTAMP(duckdb::timestamp_t(header.snapshot.created_us)),
                Value(header.snapshot.volume),
                TextOrNull(header.incremental ? header.base.Name() : ""),
                Value::UBIGINT(size),
                Value::UBIGINT(header.data_bytes),
                Value::UBIGINT(reader_->Records()),
                TextOrNull(rest ? ResumeToken(header, header.from) : "")};
    }
    void Release() override {
        reader_.reset();
        source_.reset();
    }

  private:
    std::unique_ptr<ByteSource> source_;
    std::unique_ptr<StreamReader> reader_;
};

Rows ReceivedRows(ClientContext &context, const Arguments &arguments) {
    const VolumePath path = AllowedVolumePath(context, arguments.Text(0, "path"));
    const VolumePin volume = PinOf(context, path);
    const std::optional<Origin> part = FindReceived(*volume, path.file);
    Rows rows;
    if (part) {
        const StreamHeader &header = part->header;
        rows.push_back({Value(path.ToString()), Value(header.snapshot.Name()),
                        TextOrNull(header.incremental ? header.base.Name() : ""),
                        Value(ResumeToken(header, part->reached))});
    }
    if (arguments.NamedFlag("abort")) {
        GiveUpReceived(*volume, path.file);
    }
    return rows;
}

void RegisterReceive(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("stream", LogicalType::VARCHAR);
    signature.AddParameter("destination", LogicalType::VARCHAR);
    signature.AddKeywordOnly("overwrite", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    RegisterPieceFunction(
        loader,
        {"nvme_receive",
         "Makes a database, and a snapshot of it, of what nvme_send wrote to a file, to Ceph or a descriptor "
         "(fd:0); "
         "on a volume, or "
         "of all of a snapshot as an ordinary file. It has its name when the stream was whole, and not "
         "before. What changed "
         "is received where the snapshot is that it changed since. overwrite: give up what is there, or has "
         "changed since",
         "CALL nvme_receive('/backup/tuesday', 'nvme:///dev/nvme1n1/sales.duckdb')",
         signature,
         {{"destination", LogicalType::VARCHAR, "The path"},
          {"snapshot", LogicalType::VARCHAR, "What was received, by the name that it was made with"},
          {"base", LogicalType::VARCHAR, "What it was the difference from; NULL: all was sent"},
          {"bytes", LogicalType::UBIGINT, "Written of it; what was there already is not written again"}},
         [](ClientContext &context, const Arguments &arguments) -> std::unique_ptr<PieceWork> {
             return std::make_unique<ReceiveWork>(context, arguments);
         }});
}

void RegisterVerify(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("stream", LogicalType::VARCHAR);
    RegisterPieceFunction(
        loader, {"nvme_verify",
                 "What a stream of nvme_send has, once it was read to its end and all checksums held",
                 "FROM nvme_verify('/backup/tuesday')",
                 signature,
                 {{"snapshot", LogicalType::VARCHAR, "By the name that it was made with"},
                  {"created", LogicalType::TIMESTAMP, "When it was made, in UTC"},
                  {"volume", LogicalType::VARCHAR, "UUID of the volume that it was made on"},
                  {"base", LogicalType::VARCHAR, "What it is the difference from; NULL: it has all"},
                  {"size", LogicalType::UBIGINT, "Bytes of the file, and of its logs, when received"},
                  {"bytes", LogicalType::UBIGINT, "Of them in this stream"},
                  {"records", LogicalType::UBIGINT, "Of the stream"},
                  {"resumed_from", LogicalType::VARCHAR,
                   "Where it goes on with what was cut off; NULL: from the start"}},
                 [](ClientContext &context, const Arguments &arguments) -> std::unique_ptr<PieceWork> {
                     return std::make_unique<VerifyWork>(context, arguments);
                 }});
}

} // namespace

void RegisterReceiveFunctions(duckdb::ExtensionLoader &loader) {
    RegisterReceive(loader);
    RegisterVerify(loader);
    duckdb::FunctionSignature signature;
    signature.AddParameter("path", LogicalType::VARCHAR);
    signature.AddKeywordOnly("abort", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    RegisterRowFunction(
        loader,
        {"nvme_received",
         "What is kept of a receive into this file that was cut short, if there is any. abort: give it up",
         "FROM nvme_received('nvme:///dev/nvme1n1/sales.duckdb')",
         signature,
         {{"destination", LogicalType::VARCHAR, "The path"},
          {"snapshot", LogicalType::VARCHAR, "What was sent, by the name that it was made with"},
          {"base", LogicalType::VARCHAR, "What it is the difference from; NULL: all was sent"},
          {"token", LogicalType::VARCHAR, "For nvme_send, which goes on there: resume := token"}},
         ReceivedRows});
}

} // namespace rawduck
