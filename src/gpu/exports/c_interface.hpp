//! What python/rawduck/gpu.py calls, by ctypes: one binary for all versions of Python. Everything is thread-safe.
//!
//! What can fail returns a negative number or null; rawduck_gpu_error then says why, in the thread that called. Arrow
//! and DLPack structures share the memory of their batch, which lives as long as one of them does.
#pragma once

#include <cstdint>

namespace rawduck::gpu {

extern "C" {

struct rawduck_gpu_options {
    const char *device;   //!< "" for what RAWDUCK_GPU in the environment says
    uint64_t batch_rows;  //!< at least 1
    int32_t decimal_form; //!< 0 Arrow's decimals, 1 unscaled int64, 2 float64
    int32_t has_null_value;
    double null_value; //!< what DLPack's consumers find in place of NULL
};

//! Of the last failure in this thread; valid until the next call in it.
const char *rawduck_gpu_error();

//! `*ticket` is for gpu_open_scan or gpu_open_query, and to be given back by rawduck_gpu_close; it is not 0. -1: failed.
int32_t rawduck_gpu_announce(const rawduck_gpu_options *options, uint64_t *ticket);
//! Once for what is opened, before the first batch. -1: failed.
int32_t rawduck_gpu_begin(uint64_t ticket);
//! 1: `*batch` is the next one, to be given back by rawduck_gpu_free_batch. 0: the end. 2: not yet, call again (it
//! returns every 50 ms or so, for its caller to look for signals). -1: failed.
int32_t rawduck_gpu_next(uint64_t ticket, void **batch);
void rawduck_gpu_close(uint64_t ticket);
void rawduck_gpu_free_batch(void *batch);

//! Rows and columns as JSON; valid until the batch is freed.
const char *rawduck_gpu_describe(void *batch);
//! The report as JSON; valid until the next call in this thread. Null: failed.
const char *rawduck_gpu_report(void *batch);

//! A new Python capsule: "arrow_schema" and "arrow_device_array" of a column, or of the whole batch as a struct for
//! column -1; "dltensor", or "dltensor_versioned" for `is_versioned`. Null when it fails. Called with Python's lock.
void *rawduck_gpu_schema_capsule(void *batch, int32_t column);
void *rawduck_gpu_array_capsule(void *batch, int32_t column);
void *rawduck_gpu_tensor_capsule(void *batch, int32_t column, int32_t is_versioned);

//! Makes a stream of CUDA, as DLPack numbers them, wait until the batch is there; 1 is the default stream, -1 waits for
//! nothing. -1: failed.
int32_t rawduck_gpu_wait(void *batch, int64_t stream);
//! The address of a column of numbers: 0, or -1 where it has none to hand out.
int32_t rawduck_gpu_numbers(void *batch, int32_t column, uint64_t *address);

} // extern "C"

} // namespace rawduck::gpu
