#include "gpu/exports/dlpack.hpp"

#include "common/error.hpp"

namespace rawduck::gpu {
namespace {

constexpr uint32_t MAJOR = 1, MINOR = 0;

//! A tensor with what it refers to.
template <class MANAGED> struct Owned {
    MANAGED managed = {};
    int64_t shape = 0;
    int64_t stride = 1;
    std::shared_ptr<const Batch> batch;
};

} // namespace

void RequireNumbers(const Batch &batch, size_t index) {
    const OutputColumn &output = batch.layout->at(index);
    if (output.number.bits == 0) {
        throw rawduck::Error(ErrorCode::UNSUPPORTED, "column " + output.name + ": " + output.why_no_number);
    }
    if (batch.columns[index].null_count > 0 && !output.null_value) {
        throw rawduck::Error(
            ErrorCode::UNSUPPORTED,
            "column " + output.name + " has " + std::to_string(batch.columns[index].null_count) +
                " NULLs in this batch, and DLPack has none; pass nulls=<a number to stand for "
                "them>, or take the column by Arrow");
    }
}

namespace {

template <class MANAGED> MANAGED *Export(const std::shared_ptr<const Batch> &batch, size_t index) {
    RequireNumbers(*batch, index);
    auto *owned = new Owned<MANAGED>;
    owned->batch = batch;
    owned->shape = static_cast<int64_t>(batch->rows);
    DLTensor &tensor = owned->managed.tensor;
    tensor.data = batch->columns[index].values.Data();
    tensor.device = {batch->device->TypeNumber(), batch->device->Ordinal()};
    tensor.ndim = 1;
    tensor.type_code = (*batch->layout)[index].number.code;
    tensor.type_bits = (*batch->layout)[index].number.bits;
    tensor.type_lanes = 1;
    tensor.shape = &owned->shape;
    tensor.strides = &owned->stride;
    owned->managed.context = owned;
    owned->managed.deleter = [](MANAGED *managed) { delete static_cast<Owned<MANAGED> *>(managed->context); };
    return &owned->managed;
}

} // namespace

DLManagedTensor *ExportTensor(const std::shared_ptr<const Batch> &batch, size_t column) {
    return Export<DLManagedTensor>(batch, column);
}

DLManagedTensorVersioned *ExportVersionedTensor(const std::shared_ptr<const Batch> &batch, size_t column) {
    auto *managed = Export<DLManagedTensorVersioned>(batch, column);
    managed->major = MAJOR;
    managed->minor = MINOR;
    return managed;
}

} // namespace rawduck::gpu
