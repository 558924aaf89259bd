//! DLPack: a column of numbers as a tensor of one dimension.
#pragma once

#include "gpu/pipeline/batch.hpp"

#include <cstdint>

namespace rawduck::gpu {

struct DLDevice {
    int32_t device_type;
    int32_t device_id;
};

struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    uint8_t type_code;
    uint8_t type_bits;
    uint16_t type_lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};

//! As consumers before DLPack 1.0 take it.
struct DLManagedTensor {
    DLTensor tensor;
    void *context;
    void (*deleter)(DLManagedTensor *);
};

struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(DLManagedTensorVersioned *);
    uint64_t flags;
    DLTensor tensor;
};

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 &&
                  sizeof(DLManagedTensorVersioned) == 80,
              "the layout of dlpack.h");

//! Throws Error (UNSUPPORTED) where the column holds no numbers, or NULLs for which the scan was given no value.
void RequireNumbers(const Batch &batch, size_t column);

//! The caller calls the deleter, once. Throws as RequireNumbers does.
DLManagedTensor *ExportTensor(const std::shared_ptr<const Batch> &batch, size_t column);
DLManagedTensorVersioned *ExportVersionedTensor(const std::shared_ptr<const Batch> &batch, size_t column);

} // namespace rawduck::gpu
