#include "gpu/exports/arrow.hpp"

#include <vector>

namespace rawduck::gpu {
namespace {

constexpr int64_t NULLABLE = 2;
//! What Arrow says for memory of the CPU, which has no number.
constexpr int64_t NO_DEVICE_ID = -1;
constexpr int32_t CPU = 1;

//! What a structure refers to. Children are part of their parent: they may be moved out and released on their own.
struct SchemaParts {
    std::string format, name;
    std::vector<ArrowSchema> fields;
    std::vector<ArrowSchema *> children;
};

struct ArrayParts {
    std::shared_ptr<const Batch> batch;
    std::vector<const void *> buffers;
    std::vector<ArrowArray> fields;
    std::vector<ArrowArray *> children;
};

template <class STRUCTURE, class PARTS> void Release(STRUCTURE *structure) {
    auto *parts = static_cast<PARTS *>(structure->private_data);
    for (STRUCTURE *child : parts->children) {
        if (child->release) {
            child->release(child);
        }
    }
    structure->release = nullptr;
    delete parts;
}

void FillSchema(std::string format, std::string name, size_t child_count, ArrowSchema &schema) {
    auto *parts = new SchemaParts{std::move(format), std::move(name), {}, {}};
    parts->fields.resize(child_count);
    for (ArrowSchema &field : parts->fields) {
        parts->children.push_back(&field);
    }
    schema = {};
    schema.format = parts->format.c_str();
    schema.name = parts->name.c_str();
    schema.flags = NULLABLE;
    schema.n_children = static_cast<int64_t>(child_count);
    schema.children = parts->children.data();
    schema.private_data = parts;
    schema.release = &Release<ArrowSchema, SchemaParts>;
}

void FillArray(std::shared_ptr<const Batch> batch, std::vector<const void *> buffers, uint64_t null_count,
               size_t child_count, ArrowArray &array) {
    array = {};
    array.length = static_cast<int64_t>(batch->rows);
    auto *parts = new ArrayParts{std::move(batch), std::move(buffers), {}, {}};
    parts->fields.resize(child_count);
    for (ArrowArray &field : parts->fields) {
        parts->children.push_back(&field);
    }
    array.null_count = static_cast<int64_t>(null_count);
    array.n_buffers = static_cast<int64_t>(parts->buffers.size());
    array.n_children = static_cast<int64_t>(child_count);
    array.buffers = parts->buffers.data();
    array.children = parts->children.data();
    array.private_data = parts;
    array.release = &Release<ArrowArray, ArrayParts>;
}

void FillColumn(const std::shared_ptr<const Batch> &batch, size_t index, ArrowArray &array) {
    const BatchColumn &column = batch->columns[index];
    std::vector<const void *> buffers = {column.validity.Data()};
    buffers.push_back(column.bits.Data() ? column.bits.Data() : column.values.Data());
    if ((*batch->layout)[index].stored_width == 0) {
        buffers.push_back(column.chars.Data());
    }
    FillArray(batch, std::move(buffers), column.null_count, 0, array);
}

void FillField(const OutputColumn &column, ArrowSchema &schema) {
    FillSchema(column.arrow_format, column.name, 0, schema);
}

} // namespace

void ExportSchema(const Batch &batch, int32_t column, ArrowSchema &schema) {
    if (column >= 0) {
        FillField(batch.layout->at(static_cast<size_t>(column)), schema);
        return;
    }
    FillSchema("+s", "", batch.layout->size(), schema);
    schema.flags = 0;
    for (size_t i = 0; i < batch.layout->size(); i++) {
        FillField((*batch.layout)[i], *schema.children[i]);
    }
}

void ExportArray(const std::shared_ptr<const Batch> &batch, int32_t column, ArrowDeviceArray &array) {
    array = {};
    array.device_type = batch->device->TypeNumber();
    array.device_id = array.device_type == CPU ? NO_DEVICE_ID : batch->device->Ordinal();
    array.sync_event =
        batch->ready->HandleAddress(); // lives as long as the batch, and that as long as the array
    if (column >= 0) {
        FillColumn(batch, static_cast<size_t>(column), array.array);
        return;
    }
    FillArray(batch, {nullptr}, 0, batch->columns.size(), array.array);
    for (size_t i = 0; i < batch->columns.size(); i++) {
        FillColumn(batch, i, *array.array.children[i]);
    }
}

} // namespace rawduck::gpu
