//! nvme_defragment(path): Defragmenter as a table function.
#include "common/text/size.hpp"
#include "extension/file_systems/settings.hpp"
#include "extension/sql/backup/piece_function.hpp"
#include "extension/sql/backup/stream_argument.hpp"
#include "extension/sql/functions.hpp"
#include "volume/registry.hpp"
#include "volume/upkeep/defragmenter.hpp"

#include "duckdb/main/client_data.hpp"

#include <optional>

namespace rawduck {
namespace {

using duckdb::ClientContext;
using duckdb::LogicalType;
using duckdb::Value;

class DefragmentWork final : public PieceWork {
  public:
    DefragmentWork(ClientContext &context, const Arguments &arguments) {
        const VolumePath path = AllowedVolumePath(context, arguments.Text(0, "path"));
        const uint64_t bytes_per_second = ParseSize(arguments.NamedText("rate", "0"), "rate");
        const MountOptions mount = MountOptionsOf(duckdb::ClientData::Get(context).file_opener.get());
        volume_.emplace(PinVolume(path.target, mount));
        defragmenter_ = (*volume_)->Defragment(path.file, bytes_per_second);
        all_bytes_ = defragmenter_->SizeBytes();
    }

    bool DoPiece() override {
        const bool more = defragmenter_->Step();
        done_bytes_ = more ? defragmenter_->PositionBytes() : all_bytes_.load();
        return more;
    }
    duckdb::vector<Value> Row() const override {
        return {Value(defragmenter_->FileName()),
                Value::UBIGINT(defragmenter_->ExtentsBefore()),
                Value::UBIGINT(defragmenter_->Extents()),
                Value::UBIGINT(defragmenter_->CopiedBytes()),
                Value::UBIGINT(defragmenter_->SharedBytes()),
                Value::UBIGINT(defragmenter_->NoPlaceBytes())};
    }
    void Release() override {
        defragmenter_.reset();
        volume_.reset();
    }

  private:
    std::optional<VolumePin> volume_; //!< outlives what works on it
    std::unique_ptr<Defragmenter> defragmenter_;
};

} // namespace

void RegisterDefragmentFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddParameter("path", LogicalType::VARCHAR);
    signature.AddKeywordOnly("rate", LogicalType::VARCHAR, Value(LogicalType::VARCHAR));
    RegisterPieceFunction(
        loader,
        {"nvme_defragment",
         "Copies what lies in short pieces of a file to fewer, longer ones, while others read and write it. "
         "Pieces "
         "that snapshots, clones or readers have, too, stay. rate: bytes a second that it copies at most, "
         "such "
         "as '100M'; NULL: no limit",
         "CALL nvme_defragment('nvme:///dev/nvme0n1/sales.duckdb', rate := '100M')",
         signature,
         {{"file", LogicalType::VARCHAR, "The file"},
          {"extents_before", LogicalType::UBIGINT, "Pieces in which it lay"},
          {"extents", LogicalType::UBIGINT, "Pieces in which it lies"},
          {"copied", LogicalType::UBIGINT, "Bytes that were copied"},
          {"shared", LogicalType::UBIGINT, "Bytes in short pieces that stayed, since others have them, too"},
          {"no_place", LogicalType::UBIGINT,
           "Bytes in short pieces that stayed, since no free piece is long enough for them"}},
         [](ClientContext &context, const Arguments &arguments) -> std::unique_ptr<PieceWork> {
             return std::make_unique<DefragmentWork>(context, arguments);
         }});
}

} // namespace rawduck
