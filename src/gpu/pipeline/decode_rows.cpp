#include "gpu/pipeline/decode_rows.hpp"

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
    size_t output; //!< which of the outputs
};

//! Runs the phases of all segments of some row groups, one launch for each codec and kind.
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
    }

    void Run(Phase phase) {
        std::map<std::pair<Codec, Kind>, std::vector<GroupItem>> wanted;
        std::vector<SegmentTask> tasks;
        for (const Piece &piece : pieces_) {
            auto &of_kernel = wanted[{piece.task.codec, piece.task.kind}];
            const u32 groups = GroupCount(piece.task, phase);
            for (u32 group = 0; group < groups; group++) {
                of_kernel.push_back({static_cast<u32>(tasks.size()), group});
            }
            tasks.push_back(piece.task);
        }
        std::vector<GroupItem> items;
        std::vector<DecodeLaunch> launches;
        for (const auto &[what, of_kernel] : wanted) {
            if (!of_kernel.empty()) {
                launches.push_back({what.first, what.second, static_cast<uint32_t>(items.size()),
                                    static_cast<uint32_t>(of_kernel.size())});
                items.insert(items.end(), of_kernel.begin(), of_kernel.end());
            }
        }
        if (!launches.empty()) {
            device_.Decode(phase, tasks, items, launches);
        }
    }

    //! Behind what has been run.
    void AskForErrors() { asked_ = device_.AskFor(errors_.Data(), errors_.Size()); }

    //! Waits for them. Throws CORRUPT where a kernel met bytes that make no sense.
    void ThrowErrors() {
        const auto *words = reinterpret_cast<const u32 *>(asked_->Await());
        const auto *end = words + pieces_.size();
        const auto *bad = std::find_if(words, end, [](u32 word) { return word != 0; });
        if (bad != end) {
            const Piece &piece = pieces_[static_cast<size_t>(bad - words)];
            throw rawduck::Error(
                ErrorCode::CORRUPT,
                "block " + std::to_string(piece.block) + " of the database holds a " +
                    (*bad == NOT_TEXT ? "string that is not UTF-8" : "segment that cannot be decoded") +
                    ", though its checksum fits; please report it, and read the table by SQL");
        }
    }

  private:
    Device &device_;
    std::vector<Piece> pieces_;
    Memory scratch_;
    Memory errors_;
    std::unique_ptr<Answer> asked_;
};

bool IsConstant(const std::vector<SegmentJob> &segments, uint8_t value) {
    return std::all_of(segments.begin(), segments.end(), [&](const SegmentJob &segment) {
        return segment.codec == Codec::CONSTANT && segment.constant[0] == value;
    });
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

//! Where a column of all row groups goes that have it.
struct Output {
    Kind kind = Kind::INT8;
    uint64_t width = 0;
    uint64_t rows = 0;
    Memory values, valid, lengths, offsets, chars;
};

//! A column of a row group, in its output.
struct Place {
    size_t output = 0;
    uint64_t first_row = 0;
    bool has_valid = false;
};

bool NeedsValid(const ColumnJob &column) {
    return column.validity.empty() || !IsConstant(column.validity, 1);
}

class Decoder final : public RowsInTheMaking {
  public:
    Decoder(std::vector<RowGroupJob> groups, std::shared_ptr<const BlocksOnDevice> blocks,
            std::shared_ptr<Device> device)
        : groups_(std::move(groups)), blocks_(std::move(blocks)), shared_device_(std::move(device)),
          device_(*shared_device_), launcher_(device_) {
        PlaceColumns();
        MakeRoom();
        for (size_t group = 0; group < groups_.size(); group++) {
            for (size_t i = 0; i < groups_[group].columns.size(); i++) {
                AddTasks(groups_[group].columns[i], groups_[group].rows, places_[group][i]);
            }
        }
        launcher_.Prepare();
        launcher_.Run(Phase::PREPARE);
        launcher_.Run(Phase::VALUES);
        launcher_.AskForErrors();
    }

    std::deque<std::vector<ColumnRows>> Finish(DecodeCounters &counters) override {
        blocks_->RequireSound(); // before anything is believed that stands in them
        launcher_.ThrowErrors();
        if (PlaceStrings()) {
            launcher_.Run(Phase::BYTES);
            launcher_.AskForErrors();
            launcher_.ThrowErrors();
        }
        counters.bytes_read += blocks_->BytesRead();
        counters.bytes_copied += blocks_->BytesRead();
        return Result(counters);
    }

  private:
    std::deque<std::vector<ColumnRows>> Result(DecodeCounters &counters) const {
        for (const Output &output : outputs_) {
            counters.bytes_decoded += output.values.Size() + output.chars.Size();
        }
        std::deque<std::vector<ColumnRows>> result(groups_.size());
        for (size_t group = 0; group < groups_.size(); group++) {
            for (const Place &place : places_[group]) {
                result[group].push_back(RowsAt(place, groups_[group].rows));
            }
        }
        return result;
    }

    //! Columns of one kind and name, by their order in each row group, share an output.
    void PlaceColumns() {
        std::map<std::pair<size_t, Kind>, size_t> known;
        for (const RowGroupJob &group : groups_) {
            std::vector<Place> places;
            for (size_t i = 0; i < group.columns.size(); i++) {
                const ColumnJob &column = group.columns[i];
                const auto [found, is_new] = known.insert({{i, column.kind}, outputs_.size()});
                if (is_new) {
                    outputs_.push_back({});
                    outputs_.back().kind = column.kind;
                    outputs_.back().width = column.width;
                }
                Output &output = outputs_[found->second];
                places.push_back({found->second, output.rows, NeedsValid(column)});
                output.rows += group.rows;
            }
            places_.push_back(std::move(places));
        }
    }

    void MakeRoom() {
        std::vector<bool> needs_valid(outputs_.size());
        for (const auto &places : places_) {
            for (const Place &place : places) {
                needs_valid[place.output] = needs_valid[place.output] || place.has_valid;
            }
        }
        for (size_t i = 0; i < outputs_.size(); i++) {
            Output &output = outputs_[i];
            if (output.kind == Kind::STRING) {
                output.lengths = device_.Allocate(output.rows * sizeof(u32));
                output.offsets = device_.Allocate((output.rows + 1) * sizeof(u64));
            } else {
                output.values = device_.Allocate(output.rows * output.width);
            }
            if (needs_valid[i]) {
                output.valid = device_.Allocate(output.rows);
            }
        }
    }

    void AddTasks(const ColumnJob &column, uint64_t rows, const Place &place) {
        const Output &output = outputs_[place.output];
        uint64_t row = place.first_row;
        for (const SegmentJob &segment : column.data) {
            SegmentTask task = TaskOf(segment, column.kind, *blocks_);
            if (column.kind == Kind::STRING) {
                task.lengths = reinterpret_cast<u32 *>(output.lengths.Data()) + row;
                task.valid = column.validity.empty() ? output.valid.Data() + row : nullptr;
                task.is_text = column.is_text ? 1 : 0;
            } else {
                task.values = output.values.Data() + row * column.width;
            }
            launcher_.Add({task, segment.block, place.output});
            row += segment.rows;
        }
        RAWDUCK_INVARIANT(row == place.first_row + rows,
                          "the segments of a column hold the rows of its row group");
        row = place.first_row;
        for (const SegmentJob &segment : column.validity) {
            if (place.has_valid) {
                SegmentTask task = TaskOf(segment, Kind::VALIDITY, *blocks_);
                task.values = output.valid.Data() + row;
                launcher_.Add({task, segment.block, place.output});
            }
            row += segment.rows;
        }
    }

    //! Lengths are known: makes room for the characters, and tells the tasks where theirs go. False: there are none.
    bool PlaceStrings() {
        bool has_strings = false;
        for (Output &output : outputs_) {
            if (output.kind == Kind::STRING) {
                has_strings = true;
                const uint64_t bytes =
                    device_.SumLengths(reinterpret_cast<const u32 *>(output.lengths.Data()), output.rows,
                                       reinterpret_cast<uint64_t *>(output.offsets.Data()));
                output.chars = device_.Allocate(bytes);
            }
        }
        for (Piece &piece : launcher_.Pieces()) {
            const Output &output = outputs_[piece.output];
            if (piece.task.kind == Kind::STRING) {
                const auto row = piece.task.lengths - reinterpret_cast<const u32 *>(output.lengths.Data());
                piece.task.offsets = reinterpret_cast<const u64 *>(output.offsets.Data()) + row;
                piece.task.chars = output.chars.Data();
            }
        }
        return has_strings;
    }

    ColumnRows RowsAt(const Place &place, uint64_t count) const {
        const Output &output = outputs_[place.output];
        ColumnRows rows;
        rows.rows = count;
        rows.width = output.width;
        if (output.kind == Kind::STRING) {
            rows.offsets = output.offsets.Part(place.first_row * sizeof(u64), (count + 1) * sizeof(u64));
            rows.chars = output.chars;
        } else {
            rows.values = output.values.Part(place.first_row * output.width, count * output.width);
        }
        if (place.has_valid) {
            rows.valid = output.valid.Part(place.first_row, count);
        }
        return rows;
    }

    const std::vector<RowGroupJob> groups_;
    const std::shared_ptr<const BlocksOnDevice> blocks_;
    const std::shared_ptr<Device> shared_device_;
    Device &device_;
    Launcher launcher_;
    std::vector<Output> outputs_;
    std::vector<std::vector<Place>> places_; //!< of each column of each row group
};

} // namespace

std::set<uint64_t> WantedBlocks(const RowGroupJob &group) {
    std::set<uint64_t> wanted;
    for (const ColumnJob &column : group.columns) {
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

std::unique_ptr<RowsInTheMaking> BeginRows(std::vector<RowGroupJob> groups,
                                           std::shared_ptr<const BlocksOnDevice> blocks,
                                           std::shared_ptr<Device> device) {
    return std::make_unique<Decoder>(std::move(groups), std::move(blocks), std::move(device));
}

} // namespace rawduck::gpu
