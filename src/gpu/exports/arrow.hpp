//! The Arrow C data and C device data interfaces: structures that consumers move out of and release.
#pragma once

#include "gpu/pipeline/batch.hpp"

#include <cstdint>

namespace rawduck::gpu {

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    ArrowSchema **children;
    ArrowSchema *dictionary;
    void (*release)(ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    ArrowArray **children;
    ArrowArray *dictionary;
    void (*release)(ArrowArray *);
    void *private_data;
};

struct ArrowDeviceArray {
    ArrowArray array;
    int64_t device_id;
    int32_t device_type;
    void *sync_event;
    int64_t reserved[3];
};

static_assert(sizeof(ArrowSchema) == 72 && sizeof(ArrowArray) == 80 && sizeof(ArrowDeviceArray) == 128,
              "the sizes that the Arrow specification gives them");

//! Of one column, or for -1 of all columns as the fields of a struct. The caller calls release, or moves the structure
//! out and sets release to null.
void ExportSchema(const Batch &batch, int32_t column, ArrowSchema &schema);
void ExportArray(const std::shared_ptr<const Batch> &batch, int32_t column, ArrowDeviceArray &array);

} // namespace rawduck::gpu
