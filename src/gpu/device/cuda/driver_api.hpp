//! Those functions of NVIDIA's driver that we call, declared here: nothing of CUDA is needed to build or to import. Names
//! and numbers are those of cuda.h, whose binary interface does not change once a driver has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rawduck::gpu::cuda {

using Result = int; //!< CUresult
constexpr Result SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, DEINITIALIZED = 4, NO_DEVICE = 100,
                 INVALID_IMAGE = 200, NO_BINARY_FOR_GPU = 209, UNSUPPORTED_PTX_VERSION = 222,
                 OPERATING_SYSTEM = 304, ALREADY_REGISTERED = 712, NOT_PERMITTED = 800, NOT_SUPPORTED = 801;

using DeviceNumber = int;       //!< CUdevice
using DevicePointer = uint64_t; //!< CUdeviceptr
struct ContextTag;
struct StreamTag;
struct EventTag;
struct ModuleTag;
struct FunctionTag;
struct PoolTag;
using Context = ContextTag *;
using Stream = StreamTag *;
using EventHandle = EventTag *;
using Module = ModuleTag *;
using Function = FunctionTag *;
using Pool = PoolTag *;

inline DevicePointer PointerOf(const uint8_t *device_data) {
    return reinterpret_cast<DevicePointer>(device_data);
}

//! The default stream of the context: behind all work in streams that block, and that work behind it.
inline Stream LegacyStream() {
    return reinterpret_cast<Stream>(uintptr_t{1});
}

constexpr unsigned STREAM_NON_BLOCKING = 1, EVENT_DISABLE_TIMING = 2, HOST_PORTABLE = 1;
constexpr unsigned EVENT_BLOCKING_SYNC = 1; //!< threads that wait for it sleep
constexpr int FIRST_PRIORITY = -100;        //!< the driver takes the highest that it has
constexpr int CAPTURE_RELAXED = 2;          //!< CU_STREAM_CAPTURE_MODE_RELAXED

enum Attribute : int { //!< CUdevice_attribute
    MULTIPROCESSOR_COUNT = 16,
    COMPUTE_CAPABILITY_MAJOR = 75,
    COMPUTE_CAPABILITY_MINOR = 76,
    HOST_POINTERS_OF_REGISTERED =
        91, //!< kernels read registered memory by the address that the host has for it
    MEMORY_POOLS_SUPPORTED = 115
};

struct Location {
    int type;
    int id;
};
struct CopyAttributes {     //!< CUmemcpyAttributes
    int source_order = 1;   //!< the source is read in the order of the stream
    Location from = {2, 0}; //!< the host
    Location to = {1, 0};   //!< a device
    unsigned flags = 0;
};

constexpr int POOL_RELEASE_THRESHOLD = 4; //!< CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, a uint64_t

struct PoolProperties {      //!< CUmemPoolProps
    int allocation_type = 1; //!< pinned to the device
    int handle_types = 0;    //!< not shared with other processes
    int location_type = 1;   //!< a device
    int location_id = 0;
    void *security_attributes = nullptr;
    uint64_t max_size = 0; //!< of later drivers; 0: as much as there is
    unsigned char reserved[56] = {};
};
static_assert(sizeof(PoolProperties) == 88, "the size that cuda.h gives it");

//! X(FIELD, SYMBOL, ARGUMENTS)
#define RAWDUCK_CUDA_FUNCTIONS(X)                                                                            \
    X(init, cuInit, (unsigned flags))                                                                        \
    X(driver_version, cuDriverGetVersion, (int *version))                                                    \
    X(device_count, cuDeviceGetCount, (int *count))                                                          \
    X(device_get, cuDeviceGet, (DeviceNumber * device, int ordinal))                                         \
    X(device_name, cuDeviceGetName, (char *name, int length, DeviceNumber device))                           \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, DeviceNumber device))              \
    X(context_retain, cuDevicePrimaryCtxRetain, (Context * context, DeviceNumber device))                    \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (DeviceNumber device))                                  \
    X(context_push, cuCtxPushCurrent_v2, (Context context))                                                  \
    X(context_pop, cuCtxPopCurrent_v2, (Context * context))                                                  \
    X(context_synchronize, cuCtxSynchronize, ())                                                             \
    X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))                                 \
    X(stream_create, cuStreamCreateWithPriority, (Stream * stream, unsigned flags, int priority))            \
    X(stream_destroy, cuStreamDestroy_v2, (Stream stream))                                                   \
    X(stream_wait, cuStreamWaitEvent, (Stream stream, EventHandle event, unsigned flags))                    \
    X(stream_synchronize, cuStreamSynchronize, (Stream stream))                                              \
    X(event_create, cuEventCreate, (EventHandle * event, unsigned flags))                                    \
    X(event_destroy, cuEventDestroy_v2, (EventHandle event))                                                 \
    X(event_record, cuEventRecord, (EventHandle event, Stream stream))                                       \
    X(event_synchronize, cuEventSynchronize, (EventHandle event))                                            \
    X(pool_create, cuMemPoolCreate, (Pool * pool, const PoolProperties *properties))                         \
    X(pool_set, cuMemPoolSetAttribute, (Pool pool, int attribute, void *value))                              \
    X(pool_trim, cuMemPoolTrimTo, (Pool pool, size_t kept))                                                  \
    X(pool_destroy, cuMemPoolDestroy, (Pool pool))                                                           \
    X(memory_allocate, cuMemAllocFromPoolAsync,                                                              \
      (DevicePointer * pointer, size_t bytes, Pool pool, Stream stream))                                     \
    X(memory_free, cuMemFreeAsync, (DevicePointer pointer, Stream stream))                                   \
    X(memory_info, cuMemGetInfo_v2, (size_t *free, size_t *total))                                           \
    X(host_allocate, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags))                         \
    X(host_free, cuMemFreeHost, (void *pointer))                                                             \
    X(host_register, cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned flags))                    \
    X(host_unregister, cuMemHostUnregister, (void *pointer))                                                 \
    X(copy_in, cuMemcpyHtoDAsync_v2, (DevicePointer to, const void *from, size_t bytes, Stream stream))      \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, DevicePointer from, size_t bytes, Stream stream))           \
    X(copy, cuMemcpyDtoDAsync_v2, (DevicePointer to, DevicePointer from, size_t bytes, Stream stream))       \
    X(fill, cuMemsetD8Async, (DevicePointer to, unsigned char byte, size_t count, Stream stream))            \
    X(module_load, cuModuleLoadData, (Module * module, const void *image))                                   \
    X(module_unload, cuModuleUnload, (Module module))                                                        \
    X(module_function, cuModuleGetFunction, (Function * function, Module module, const char *name))          \
    X(launch, cuLaunchKernel,                                                                                \
      (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,               \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void **arguments,           \
       void **extra))                                                                                        \
    X(error_name, cuGetErrorName, (Result result, const char **text))                                        \
    X(error_text, cuGetErrorString, (Result result, const char **text))

//! Null in drivers that have them not.
#define RAWDUCK_CUDA_NEW_FUNCTIONS(X)                                                                        \
    X(copy_batch, cuMemcpyBatchAsync_v2,                                                                     \
      (DevicePointer * to, DevicePointer * from, size_t *bytes, size_t count, CopyAttributes *attributes,    \
       size_t *first_of_attributes, size_t attributes_count, Stream stream))

} // namespace rawduck::gpu::cuda
