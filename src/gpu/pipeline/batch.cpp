#include "gpu/pipeline/batch.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <algorithm>
#include <new>

namespace rawduck::gpu {
namespace {

constexpr uint8_t DLPACK_BOOL = 6;

RowSelection Selected(const QueuedRows &rows, size_t column, RowSelection selection) {
    if (rows.is_listed[column]) {
        selection.device_rows = reinterpret_cast<const uint32_t *>(rows.listed_rows.Data());
    }
    return selection;
}

//! Puts rows one behind the other. Those that lie so already, as most row groups that were decoded together do, are one
//! copy: a GPU needs as long for the beginning of a copy as for a megabyte of it.
class Gatherer {
  public:
    Gatherer(Device &device, uint64_t width, uint8_t *device_to)
        : device_(device), width_(width), to_(device_to) {}

    void Add(const Memory &from, const RowSelection &rows) {
        const uint8_t *begin = from.Data() + rows.first * width_;
        const bool goes_on =
            !rows.device_rows && copied_ > 0 && begin == from_ + copied_ && from.IsBeside(memory_);
        if (!goes_on) {
            Finish();
            if (rows.device_rows) {
                device_.Gather(from.Data(), width_, rows, Skip(rows.count));
                return;
            }
            memory_ = from;
            from_ = begin;
        }
        copied_ += rows.count * width_;
    }

    //! Where the next rows go, which somebody else writes.
    uint8_t *Skip(uint64_t rows) {
        Finish();
        uint8_t *to = to_;
        to_ += rows * width_;
        return to;
    }

    void Finish() {
        device_.Copy(to_, from_, copied_);
        to_ += copied_;
        copied_ = 0;
    }

  private:
    Device &device_;
    const uint64_t width_;
    uint8_t *to_;
    // What is to be copied to it, of one allocation.
    Memory memory_;
    const uint8_t *from_ = nullptr;
    uint64_t copied_ = 0;
};

const uint64_t *OffsetsOf(const ColumnRows &column) {
    return reinterpret_cast<const uint64_t *>(column.offsets.Data());
}

} // namespace

Batch::~Batch() {
    if (!is_used_elsewhere) {
        return;
    }
    try {
        device->LetGoWhenIdle(std::make_shared<std::vector<BatchColumn>>(std::move(columns)));
    } catch (const std::bad_alloc &) {
        device->WaitForAllNoted();
    }
}

BatchBuilder::BatchBuilder(std::shared_ptr<const std::vector<OutputColumn>> layout,
                           std::shared_ptr<Device> device)
    : layout_(std::move(layout)), device_(std::move(device)) {}

void BatchBuilder::Add(QueuedRows rows) {
    for (size_t i = 0; i < rows.columns.size(); i++) {
        RAWDUCK_INVARIANT(rows.is_listed[i] || rows.columns[i].rows == rows.rows,
                          "all columns of a row group have the same visible rows");
    }
    if (rows.rows > 0) {
        queued_count_ += rows.rows;
        queue_.push_back(std::move(rows));
    }
}

void BatchBuilder::Shorten(Part &part, std::vector<uint64_t> &string_room) const {
    part.string_bytes.assign(layout_->size(), 0);
    uint64_t measured = 0; // what the count was when all strings were measured
    while (measured != part.selection.count) {
        measured = part.selection.count;
        for (size_t i = 0; i < layout_->size(); i++) {
            if ((*layout_)[i].stored_width == 0) {
                const RowSelection rows = Selected(*part.rows, i, part.selection);
                const StringExtent fitting =
                    device_->Fitting(OffsetsOf(part.rows->columns[i]), rows, string_room[i]);
                part.selection.count = fitting.rows;
                part.string_bytes[i] = fitting.bytes;
            }
        }
    }
    for (size_t i = 0; i < layout_->size(); i++) {
        string_room[i] -= part.string_bytes[i];
    }
}

std::vector<BatchBuilder::Part> BatchBuilder::ChooseParts(uint64_t row_limit,
                                                          std::vector<uint64_t> string_room) {
    std::vector<Part> parts;
    uint64_t first = taken_;
    for (const QueuedRows &rows : queue_) {
        Part part{&rows, {nullptr, first, std::min(rows.rows - first, row_limit)}, {}};
        const uint64_t wanted = part.selection.count;
        Shorten(part, string_room);
        row_limit -= part.selection.count;
        if (part.selection.count > 0) {
            parts.push_back(part);
        }
        if (part.selection.count < wanted || row_limit == 0) {
            break;
        }
        first = 0;
    }
    return parts;
}

void BatchBuilder::GatherColumn(size_t index, const std::vector<Part> &parts, const Memory &values) const {
    Gatherer gatherer(*device_, (*layout_)[index].stored_width, values.Data());
    for (const Part &part : parts) {
        gatherer.Add(part.rows->columns[index].values, Selected(*part.rows, index, part.selection));
    }
    gatherer.Finish();
}

void BatchBuilder::GatherStrings(size_t index, const std::vector<Part> &parts, uint64_t rows,
                                 BatchColumn &column) const {
    uint64_t bytes = 0;
    for (const Part &part : parts) {
        bytes += part.string_bytes[index];
    }
    column.values = device_->Allocate((rows + 1) * sizeof(int32_t), Purpose::SHARED);
    column.chars = device_->Allocate(bytes, Purpose::SHARED);
    auto *offsets = reinterpret_cast<int32_t *>(column.values.Data());
    device_->Fill(column.values.Data(), 0, sizeof(int32_t));
    for (const Part &part : parts) {
        const ColumnRows &from = part.rows->columns[index];
        const RowSelection selected = Selected(*part.rows, index, part.selection);
        device_->GatherStrings(OffsetsOf(from), from.chars.Data(), selected, part.string_bytes[index],
                               offsets, column.chars.Data());
        offsets += selected.count;
    }
}

Memory BatchBuilder::GatherValid(size_t index, const std::vector<Part> &parts, uint64_t rows) const {
    const bool has_nulls = std::any_of(parts.begin(), parts.end(), [&](const Part &part) {
        return part.rows->columns[index].valid.Data() != nullptr;
    });
    if (!has_nulls) {
        return {};
    }
    Memory valid = device_->Allocate(rows);
    Gatherer gatherer(*device_, 1, valid.Data());
    for (const Part &part : parts) {
        const Memory &from = part.rows->columns[index].valid;
        const RowSelection selected = Selected(*part.rows, index, part.selection);
        if (from.Data()) {
            gatherer.Add(from, selected);
        } else {
            device_->Fill(gatherer.Skip(selected.count), 1, selected.count);
        }
    }
    gatherer.Finish();
    return valid;
}

BatchColumn BatchBuilder::BuildColumn(size_t index, const std::vector<Part> &parts, uint64_t rows) {
    const OutputColumn &output = (*layout_)[index];
    BatchColumn column;
    if (output.stored_width == 0) {
        GatherStrings(index, parts, rows, column);
    } else if (output.conversion == Conversion::NONE) {
        column.values = device_->Allocate(rows * output.stored_width, Purpose::SHARED);
        GatherColumn(index, parts, column.values);
    } else {
        const Memory stored = device_->Allocate(rows * output.stored_width);
        GatherColumn(index, parts, stored);
        column.values = device_->Allocate(rows * output.width, Purpose::SHARED);
        device_->Convert(output.conversion, stored.Data(), output.stored_width, rows, output.scale,
                         column.values.Data());
    }
    const Memory valid = GatherValid(index, parts, rows);
    if (valid.Data()) {
        column.validity = device_->Allocate((rows + 7) / 8, Purpose::SHARED);
        column.null_count = device_->PackBitsAndCount(valid.Data(), rows, column.validity.Data());
        if (output.null_value && output.number.bits != 0) {
            device_->ReplaceNulls(valid.Data(), rows, output.null_value->data(), output.width,
                                  column.values.Data());
        }
    }
    if (column.null_count == 0) {
        column.validity = {};
    }
    if (output.number.code == DLPACK_BOOL) {
        column.bits = device_->Allocate((rows + 7) / 8, Purpose::SHARED);
        device_->PackBits(column.values.Data(), rows, column.bits.Data());
    }
    return column;
}

void BatchBuilder::Drop(uint64_t rows) {
    queued_count_ -= rows;
    taken_ += rows;
    while (!queue_.empty() && taken_ >= queue_.front().rows) {
        taken_ -= queue_.front().rows;
        queue_.pop_front();
    }
}

std::shared_ptr<Batch> BatchBuilder::Build(uint64_t row_limit, uint64_t string_limit) {
    const std::vector<Part> parts =
        ChooseParts(row_limit, std::vector<uint64_t>(layout_->size(), string_limit));
    auto batch = std::make_shared<Batch>();
    for (const Part &part : parts) {
        batch->rows += part.selection.count;
    }
    if (batch->rows == 0 && queued_count_ > 0) {
        throw rawduck::Error(ErrorCode::UNSUPPORTED,
                             "a string of more than " + std::to_string(string_limit) +
                                 " bytes does not fit into a column of a batch; leave its column out");
    }
    batch->layout = layout_;
    batch->device = device_;
    for (size_t i = 0; i < layout_->size(); i++) {
        batch->columns.push_back(BuildColumn(i, parts, batch->rows));
    }
    Drop(batch->rows);
    batch->ready = device_->Ready();
    return batch;
}

} // namespace rawduck::gpu
