#include "gpu/exports/c_interface.hpp"

#include "gpu/device/open_device.hpp"
#include "gpu/exports/arrow.hpp"
#include "gpu/exports/describe.hpp"
#include "gpu/exports/dlpack.hpp"
#include "gpu/exports/guarded.hpp"
#include "gpu/scan/open_scans.hpp"

#include "common/error.hpp"

#include <dlfcn.h>
#include <memory>
#include <string>

#define RAWDUCK_EXPORT extern "C" __attribute__((visibility("default")))

namespace rawduck::gpu {
namespace {

//! What Python holds for a batch.
struct BatchHandle {
    std::shared_ptr<const Batch> batch;
    std::string description;
};

BatchHandle &HandleOf(void *batch) {
    return *static_cast<BatchHandle *>(batch);
}

//! Python's own functions for capsules, found in the process: nothing here is linked with Python.
struct CapsuleFunctions {
    using Destructor = void (*)(void *capsule);

    void *(*create)(void *pointer, const char *name, Destructor destructor);
    void *(*pointer)(void *capsule, const char *name);
    int (*is_valid)(void *capsule, const char *name);
};

template <class FUNCTION> void Find(FUNCTION &function, const char *name) {
    function = reinterpret_cast<FUNCTION>(dlsym(RTLD_DEFAULT, name));
    if (!function) {
        throw rawduck::Error(ErrorCode::UNSUPPORTED,
                             std::string(name) +
                                 " is not in this process; capsules are made for Python only");
    }
}

CapsuleFunctions Capsules() {
    CapsuleFunctions functions;
    Find(functions.create, "PyCapsule_New");
    Find(functions.pointer, "PyCapsule_GetPointer");
    Find(functions.is_valid, "PyCapsule_IsValid");
    return functions;
}

//! A consumer has moved the structure out, or it is released here.
template <class STRUCTURE> void ReleaseUnused(STRUCTURE &structure) {
    if (structure.release) {
        structure.release(&structure);
    }
}

void ReleaseUnused(ArrowDeviceArray &array) {
    ReleaseUnused(array.array);
}

template <class STRUCTURE> struct CapsuleOf;
template <> struct CapsuleOf<ArrowSchema> {
    static constexpr const char *NAME = "arrow_schema";
};
template <> struct CapsuleOf<ArrowDeviceArray> {
    static constexpr const char *NAME = "arrow_device_array";
};
template <> struct CapsuleOf<DLManagedTensor> {
    static constexpr const char *NAME = "dltensor";
};
template <> struct CapsuleOf<DLManagedTensorVersioned> {
    static constexpr const char *NAME = "dltensor_versioned";
};

//! Of Arrow's capsules: these own the structure, its contents are the consumer's once that has moved them out.
template <class STRUCTURE> void DestroyArrowCapsule(void *capsule) {
    auto *structure = static_cast<STRUCTURE *>(Capsules().pointer(capsule, CapsuleOf<STRUCTURE>::NAME));
    ReleaseUnused(*structure);
    delete structure;
}

//! A consumer of DLPack renames the capsule and calls the deleter itself.
template <class MANAGED> void DestroyTensorCapsule(void *capsule) {
    const CapsuleFunctions functions = Capsules();
    if (functions.is_valid(capsule, CapsuleOf<MANAGED>::NAME)) {
        auto *managed = static_cast<MANAGED *>(functions.pointer(capsule, CapsuleOf<MANAGED>::NAME));
        managed->deleter(managed);
    }
}

template <class STRUCTURE> void *ArrowCapsule(std::unique_ptr<STRUCTURE> structure) {
    void *capsule =
        Capsules().create(structure.get(), CapsuleOf<STRUCTURE>::NAME, &DestroyArrowCapsule<STRUCTURE>);
    if (!capsule) {
        ReleaseUnused(*structure);
        throw std::bad_alloc();
    }
    structure.release(); // the capsule's
    return capsule;
}

template <class MANAGED> void *TensorCapsule(MANAGED *managed) {
    void *capsule = Capsules().create(managed, CapsuleOf<MANAGED>::NAME, &DestroyTensorCapsule<MANAGED>);
    if (!capsule) {
        managed->deleter(managed);
        throw std::bad_alloc();
    }
    return capsule;
}

} // namespace

RAWDUCK_EXPORT const char *rawduck_gpu_error() {
    return LastError().c_str();
}

RAWDUCK_EXPORT int32_t rawduck_gpu_announce(const rawduck_gpu_options *options, uint64_t *ticket) {
    return Guarded(int32_t{-1}, [&] {
        ScanOptions announced;
        announced.device = options->device;
        announced.batch_rows = options->batch_rows;
        announced.output.decimals = static_cast<DecimalForm>(options->decimal_form);
        if (options->has_null_value) {
            announced.output.null_value = options->null_value;
        }
        OpenDevice(announced.device); // says now what is wrong with it
        *ticket = AnnounceScan(announced);
        return int32_t{0};
    });
}

RAWDUCK_EXPORT int32_t rawduck_gpu_begin(uint64_t ticket) {
    return Guarded(int32_t{-1}, [&] {
        OpenedScan(ticket)->Begin();
        return int32_t{0};
    });
}

RAWDUCK_EXPORT int32_t rawduck_gpu_next(uint64_t ticket, void **batch) {
    return Guarded(int32_t{-1}, [&] {
        std::shared_ptr<Batch> next;
        switch (OpenedScan(ticket)->Next(next)) {
        case BatchSource::Step::END:
            return int32_t{0};
        case BatchSource::Step::NOT_YET:
            return int32_t{2};
        case BatchSource::Step::BATCH:
            break;
        }
        *batch = new BatchHandle{next, DescribeBatch(*next)};
        return int32_t{1};
    });
}

RAWDUCK_EXPORT void rawduck_gpu_close(uint64_t ticket) {
    CloseScan(ticket);
}

RAWDUCK_EXPORT void rawduck_gpu_free_batch(void *batch) {
    delete static_cast<BatchHandle *>(batch);
}

RAWDUCK_EXPORT const char *rawduck_gpu_describe(void *batch) {
    return HandleOf(batch).description.c_str();
}

RAWDUCK_EXPORT const char *rawduck_gpu_report(void *batch) {
    thread_local std::string report;
    return Guarded(static_cast<const char *>(nullptr), [&] {
        report = DescribeReport(*HandleOf(batch).batch);
        return report.c_str();
    });
}

RAWDUCK_EXPORT void *rawduck_gpu_schema_capsule(void *batch, int32_t column) {
    return Guarded(static_cast<void *>(nullptr), [&] {
        auto schema = std::make_unique<ArrowSchema>();
        ExportSchema(*HandleOf(batch).batch, column, *schema);
        return ArrowCapsule(std::move(schema));
    });
}

RAWDUCK_EXPORT void *rawduck_gpu_array_capsule(void *batch, int32_t column) {
    return Guarded(static_cast<void *>(nullptr), [&] {
        auto array = std::make_unique<ArrowDeviceArray>();
        ExportArray(HandleOf(batch).batch, column, *array);
        HandleOf(batch).batch->is_used_elsewhere = true;
        return ArrowCapsule(std::move(array));
    });
}

RAWDUCK_EXPORT void *rawduck_gpu_tensor_capsule(void *batch, int32_t column, int32_t is_versioned) {
    return Guarded(static_cast<void *>(nullptr), [&] {
        const auto index = static_cast<size_t>(column);
        return is_versioned ? TensorCapsule(ExportVersionedTensor(HandleOf(batch).batch, index))
                            : TensorCapsule(ExportTensor(HandleOf(batch).batch, index));
    });
}

RAWDUCK_EXPORT int32_t rawduck_gpu_wait(void *batch, int64_t stream) {
    constexpr int64_t PER_THREAD = 2; // the last one that the default stream is ordered with
    return Guarded(int32_t{-1}, [&] {
        const Batch &waited = *HandleOf(batch).batch;
        if (stream < 0 || stream > PER_THREAD) {
            waited.is_used_elsewhere = true;
        }
        if (stream >= 0) {
            waited.device->MakeWait(static_cast<uint64_t>(stream), *waited.ready);
        }
        return int32_t{0};
    });
}

RAWDUCK_EXPORT int32_t rawduck_gpu_numbers(void *batch, int32_t column, uint64_t *address) {
    return Guarded(int32_t{-1}, [&] {
        const Batch &asked = *HandleOf(batch).batch;
        RequireNumbers(asked, static_cast<size_t>(column));
        asked.is_used_elsewhere = true;
        *address = reinterpret_cast<uint64_t>(asked.columns[static_cast<size_t>(column)].values.Data());
        return int32_t{0};
    });
}

} // namespace rawduck::gpu
