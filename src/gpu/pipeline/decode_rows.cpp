#include "gpu/pipeline/decode_rows.hpp"

#include "gpu/pipeline/blocks_on_device.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace rawduck::gpu {
namespace {

constexpr uint64_t SCRATCH_ALIGNMENT = 16;

//! A segment that takes part, with what its messages need.
struct Piece {
    SegmentTask task;
    uint64_t block;
    size_t column;
};

//! Runs the phases of all segments of a row group, one launch for each codec and kind.
class Launcher {
  public:
    explicit Launcher(Device &device) : device_(device) {}

    void Add(const Piece &piece) { pieces_.push_back(piece); }
    std::vector<Piece> &Pieces() { return pieces_; }

    //! Scratch and error words; after the last Add.
    void Prepare() {
        uint64_t scratch_bytes = 0;
        std::vector<uint64_t> starts;
        for (const Piece &piece : pieces_) {
            starts.push_back(scratch_bytes);
            const uint64_t bytes = ScratchBytes(piece.task);
            scratch_bytes += (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
        }
        scratch_ = device_.Allocate(scratch_bytes);
        errors_ = device_.Allocate(pieces_.size() * sizeof(u32));
        device_.Fill(errors_.Data(), 0, errors_.Size());
        for (size_t i = 0; i < pieces_.size(); i++) {
            pieces_[i].task.scratch = scratch_.Data() + starts[i];
            pieces_[i].task.error = reinterpret_cast<u32 *>(errors_.Data()) + i;
        }
        Run(Phase::PREPARE);
    }

    //! Throws CORRUPT where a kernel met bytes that make no sense.
    void Run(Phase phase) {
        std::map<std::pair<Codec, Kind>, std::vector<GroupItem>> launches;
        std::vector<SegmentTask> tasks;
        for (const Piece &piece : pieces_) {
            auto &items = launches[{piece.task.codec, piece.task.kind}];
            const u32 groups = GroupCount(piece.task, phase);
            for (u32 group = 0; group < groups; group++) {
                items.push_back({static_cast<u32>(tasks.size()), group});
            }
            tasks.push_back(piece.task);
        }
        for (const auto &[what, items] : launches) {
            if (!items.empty()) {
                device_.Decode(what.first, what.second, phase, tasks, items);
            }
        }
        ThrowErrors();
    }

  private:
    void ThrowErrors() {
        std::vector<u32> words(pieces_.size());
        device_.CopyOut(words.data(), errors_.Data(), errors_.Size());
        const auto bad = std::find_if(words.begin(), words.end(), [](u32 word) { return word != 0; });
        if (bad != words.end()) {
            const Piece &piece = pieces_[static_cast<size_t>(bad - words.begin())];
            throw rawduck::Error(
                ErrorCode::CORRUPT,
                "block " + std::to_string(piece.block) + " of the database holds a " +
                    (*bad == NOT_TEXT ? "string that is not UTF-8" : "segment that cannot be decoded") +
                    ", though its checksum fits; please report it, and read the table by SQL");
        }
    }

    Device &device_;
    std::vector<Piece> pieces_;
    Memory scratch_;
    Memory errors_;
};

bool IsConstant(const std::vector<SegmentJob> &segments, uint8_t value) {
    return std::all_of(segments.begin(), segments.end(), [&](const SegmentJob &segment) {
        return segment.codec == Codec::CONSTANT && segment.constant[0] == value;
    });
}

std::set<uint64_t> WantedBlocks(const std::vector<ColumnJob> &columns) {
    std::set<uint64_t> wanted;
    for (const ColumnJob &column : columns) {
        for (const auto *segments : {&column.data, &column.validity}) {
            for (const SegmentJob &segment : *segments) {
                if (segment.codec != Codec::CONSTANT) {
                    wanted.insert(segment.block);
                }
            }
        }
    }
    return wanted;
}

SegmentTask TaskOf(const SegmentJob &segment, Kind kind, const BlocksOnDevice &blocks) {
    SegmentTask task = {};
    task.codec = segment.codec;
    task.kind = kind;
    task.segment_rows = task.row_count = static_cast<u32>(segment.rows);
    std::copy(segment.constant.begin(), segment.constant.end(), task.constant);
    if (segment.codec != Codec::CONSTANT) {
        task.bytes = blocks.At(segment.block, segment.offset);
        task.byte_count = segment.byte_count;
    }
    return task;
}

//! Output of one column, with what strings need in between.
struct Decoded {
    ColumnRows rows;
    Memory lengths;
};

Decoded MakeRoom(const ColumnJob &column, uint64_t rows, Device &device) {
    Decoded decoded;
    decoded.rows.rows = rows;
    decoded.rows.width = column.width;
    if (column.kind == Kind::STRING) {
        decoded.lengths = device.Allocate(rows * sizeof(u32));
        decoded.rows.offsets = device.Allocate((rows + 1) * sizeof(u64));
    } else {
        decoded.rows.values = device.Allocate(rows * column.width);
    }
    if (column.validity.empty() || !IsConstant(column.validity, 1)) {
        decoded.rows.valid = device.Allocate(rows);
    }
    return decoded;
}

void AddTasks(const ColumnJob &column, size_t index, const Decoded &decoded, const BlocksOnDevice &blocks,
              Launcher &launcher) {
    uint64_t row = 0;
    for (const SegmentJob &segment : column.data) {
        SegmentTask task = TaskOf(segment, column.kind, blocks);
        if (column.kind == Kind::STRING) {
            task.lengths = reinterpret_cast<u32 *>(decoded.lengths.Data()) + row;
            task.valid = column.validity.empty() ? decoded.rows.valid.Data() + row : nullptr;
            task.is_text = column.is_text ? 1 : 0;
        } else {
            task.values = decoded.rows.values.Data() + row * column.width;
        }
        launcher.Add({task, segment.block, index});
        row += segment.rows;
    }
    RAWDUCK_INVARIANT(row == decoded.rows.rows, "the segments of a column hold the rows of its row group");
    row = 0;
    for (const SegmentJob &segment : column.validity) {
        if (decoded.rows.valid.Data()) {
            SegmentTask task = TaskOf(segment, Kind::VALIDITY, blocks);
            task.values = decoded.rows.valid.Data() + row;
            launcher.Add({task, segment.block, index});
        }
        row += segment.rows;
    }
}

//! Lengths are known: makes room for the characters, and tells the tasks where theirs go.
void PlaceStrings(std::vector<Decoded> &decoded, Device &device, Launcher &launcher) {
    for (Decoded &column : decoded) {
        if (column.lengths.Data()) {
            const uint64_t bytes =
                device.SumLengths(reinterpret_cast<const u32 *>(column.lengths.Data()), column.rows.rows,
                                  reinterpret_cast<uint64_t *>(column.rows.offsets.Data()));
            column.rows.chars = device.Allocate(bytes);
        }
    }
    for (Piece &piece : launcher.Pieces()) {
        const Decoded &column = decoded[piece.column];
        if (piece.task.kind == Kind::STRING) {
            const auto row = piece.task.lengths - reinterpret_cast<const u32 *>(column.lengths.Data());
            piece.task.offsets = reinterpret_cast<const u64 *>(column.rows.offsets.Data()) + row;
            piece.task.chars = column.rows.chars.Data();
        }
    }
}

} // namespace

std::vector<ColumnRows> DecodeRows(const std::vector<ColumnJob> &columns, uint64_t rows, BlockSource &blocks,
                                   Device &device, DecodeCounters &counters) {
    const BlocksOnDevice compressed(WantedBlocks(columns), blocks, device, counters);
    std::vector<Decoded> decoded;
    Launcher launcher(device);
    for (const ColumnJob &column : columns) {
        decoded.push_back(MakeRoom(column, rows, device));
        AddTasks(column, decoded.size() - 1, decoded.back(), compressed, launcher);
    }
    launcher.Prepare();
    launcher.Run(Phase::VALUES);
    PlaceStrings(decoded, device, launcher);
    launcher.Run(Phase::BYTES);

    std::vector<ColumnRows> result;
    for (Decoded &column : decoded) {
        counters.bytes_decoded += column.rows.values.Size() + column.rows.chars.Size();
        result.push_back(std::move(column.rows));
    }
    return result;
}

} // namespace rawduck::gpu
