#include "cuda_checker/checker.hpp"
#include "cuda_checker/pinned_copies.hpp"
#include "cuda_checker/violation.hpp"

#include "gpu/device/cuda/driver_api.hpp"
#include "gpu/kernels/host_kernels.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unistd.h>
#include <utility>
#include <vector>

namespace rawduck::gpu::checker {
namespace {

constexpr int ARCHITECTURE = 90;

int the_context = 0;
thread_local std::vector<void *> entered;
thread_local int capture_mode = 0; // the strictest, as in each thread that has not said otherwise

//! Memory that nobody may touch was touched: says by what.
void OnFault(int number, siginfo_t *info, void *) {
    Checker &all = All();
    const std::string by = all.streams.Running().empty() ? "the host" : all.streams.Running();
    const std::string where = all.memory.Describe(info->si_addr);
    if (where.find("no device memory") == std::string::npos) {
        Violation(by + " touches " + where);
    }
    std::signal(number, SIG_DFL);
}

void Start() {
    Checker &all = All();
    if (!all.is_started) {
        all.is_started = true;
        struct sigaction action = {};
        action.sa_sigaction = &OnFault;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, nullptr);
        const char *seed = std::getenv("RAWDUCK_CHECKER_SEED");
        all.streams.SetSeed(seed ? static_cast<unsigned>(std::atoi(seed)) : 0);
    }
}

bool NeedsContext(const std::string &function) {
    static const auto &free_of_it = *new std::set<std::string>{"cuInit",
                                                               "cuDriverGetVersion",
                                                               "cuDeviceGetCount",
                                                               "cuDeviceGet",
                                                               "cuDeviceGetName",
                                                               "cuDeviceGetAttribute",
                                                               "cuDevicePrimaryCtxRetain",
                                                               "cuDevicePrimaryCtxRelease_v2",
                                                               "cuCtxPushCurrent_v2",
                                                               "cuThreadExchangeStreamCaptureMode"};
    return free_of_it.count(function) == 0;
}

//! A call that gives something back may report what an earlier one has met, though it is done.
bool IsDoneThoughItFails(const std::string &function) {
    static const auto &giving_back = *new std::set<std::string>{
        "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2", "cuEventDestroy_v2", "cuMemFreeAsync",
        "cuMemFreeHost",      "cuMemHostUnregister",          "cuMemPoolDestroy",  "cuModuleUnload",
        "cuStreamDestroy_v2"};
    return giving_back.count(function) != 0;
}

//! What ends the capture of a graph in any thread, called in a thread that does not allow it.
bool DisturbsCapture(const std::string &function) {
    static const auto &unsafe = *new std::set<std::string>{
        "cuEventSynchronize",   "cuStreamSynchronize", "cuMemHostAlloc",  "cuMemFreeHost",
        "cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemPoolCreate", "cuMemPoolTrimTo",
        "cuMemPoolDestroy",     "cuModuleLoadData",    "cuModuleUnload",  "cuMemcpyDtoH_v2"};
    return function == "cuCtxSynchronize" || (capture_mode != CAPTURE_RELAXED && unsafe.count(function) != 0);
}

//! One call of a function: alone, counted, and the one that is to fail does so without doing anything, as a rule.
template <class BODY> Result Call(const char *function, const BODY &body) {
    Checker &all = All();
    const std::lock_guard<std::recursive_mutex> lock(all.mutex);
    if (!all.is_started && std::strcmp(function, "cuInit") != 0) {
        Violation(std::string(function) + " is called before cuInit");
    }
    if (NeedsContext(function) && entered.empty()) {
        Violation(std::string(function) + " is called in a thread without a context");
    }
    if (all.is_capturing && DisturbsCapture(function)) {
        Violation(std::string(function) + " ends the capture of a graph");
    }
    all.calls++;
    if (all.calls == all.failing_call) {
        all.failed = function;
        if (IsDoneThoughItFails(function)) {
            body(all);
        }
        return all.failure;
    }
    return body(all);
}

const uint8_t *DeviceData(DevicePointer pointer) {
    return reinterpret_cast<const uint8_t *>(pointer);
}

template <class T> T *Known(std::set<T *> &known, void *handle, const char *function) {
    auto *found = static_cast<T *>(handle);
    if (known.count(found) == 0) {
        Violation(std::string(function) + " gets a handle that does not exist, or is destroyed");
    }
    return found;
}

RecordedEvent &EventOf(Checker &all, EventHandle handle, const char *function) {
    return *Known(all.events, handle, function);
}

//! Of a cubin; 0 for PTX.
int ArchitectureOf(const uint8_t *image) {
    if (std::memcmp(image,
                    "\x7f"
                    "ELF",
                    4) != 0) {
        return 0;
    }
    uint32_t flags;
    std::memcpy(&flags, image + 48, sizeof(flags));
    return static_cast<int>((flags & 0xff) >= 30 ? flags & 0xff : flags >> 8 & 0xff);
}

//! The bytes of a cubin: its section headers lie at its end.
size_t SizeOf(const uint8_t *image) {
    uint64_t headers;
    uint16_t size, count;
    std::memcpy(&headers, image + 40, sizeof(headers));
    std::memcpy(&size, image + 58, sizeof(size));
    std::memcpy(&count, image + 60, sizeof(count));
    return headers + static_cast<size_t>(size) * count;
}

} // namespace

// The driver's functions, as driver_api.hpp declares them.
#define CHECKED(SYMBOL, ARGUMENTS, ...)                                                                      \
    extern "C" __attribute__((visibility("default"))) Result SYMBOL ARGUMENTS {                              \
        return Call(#SYMBOL, [&]([[maybe_unused]] Checker & all)->Result __VA_ARGS__);                       \
    }

extern "C" __attribute__((visibility("default"))) Result cuInit(unsigned) {
    const std::lock_guard<std::recursive_mutex> lock(All().mutex);
    Start();
    return Call("cuInit", [](Checker &) { return SUCCESS; });
}

CHECKED(cuDriverGetVersion, (int *version), {
    const char *asked = std::getenv("RAWDUCK_CHECKER_VERSION");
    *version = asked ? std::atoi(asked) : 12040;
    return SUCCESS;
})
CHECKED(cuDeviceGetCount, (int *count), {
    *count = 1;
    return SUCCESS;
})
CHECKED(cuDeviceGet, (DeviceNumber * device, int ordinal), {
    *device = ordinal;
    return SUCCESS;
})
CHECKED(cuDeviceGetName, (char *name, int length, DeviceNumber), {
    std::strncpy(name, "checker of driver calls, no GPU", static_cast<size_t>(length));
    return SUCCESS;
})
CHECKED(cuDeviceGetAttribute, (int *value, int attribute, DeviceNumber), {
    *value = attribute == COMPUTE_CAPABILITY_MAJOR   ? ARCHITECTURE / 10
             : attribute == COMPUTE_CAPABILITY_MINOR ? ARCHITECTURE % 10
                                                     : 1;
    return SUCCESS;
})
CHECKED(cuDevicePrimaryCtxRetain, (Context * context, DeviceNumber), {
    all.contexts++;
    *context = reinterpret_cast<Context>(&the_context);
    return SUCCESS;
})
CHECKED(cuDevicePrimaryCtxRelease_v2, (DeviceNumber), {
    if (all.contexts-- == 0) {
        Violation("a context is released more often than it was taken");
    }
    return SUCCESS;
})
CHECKED(cuCtxPushCurrent_v2, (Context context), {
    if (reinterpret_cast<int *>(context) != &the_context || all.contexts == 0) {
        Violation("a context that does not exist is entered");
    }
    entered.push_back(context);
    return SUCCESS;
})
CHECKED(cuCtxPopCurrent_v2, (Context * context), {
    *context = static_cast<Context>(entered.back());
    entered.pop_back();
    return SUCCESS;
})
CHECKED(cuThreadExchangeStreamCaptureMode, (int *mode), {
    std::swap(*mode, capture_mode);
    return SUCCESS;
})
extern "C" __attribute__((visibility("default"))) Result cuCtxSynchronize() {
    while (All().is_held) { // others go on meanwhile
        usleep(1000);
    }
    return Call("cuCtxSynchronize", [](Checker &all) {
        all.streams.SynchronizeAll();
        return SUCCESS;
    });
}
CHECKED(cuStreamCreate, (Stream * stream, unsigned flags), {
    *stream = reinterpret_cast<Stream>(all.streams.Create(flags != STREAM_NON_BLOCKING));
    return SUCCESS;
})
CHECKED(cuStreamCreateWithPriority, (Stream * stream, unsigned flags, int), {
    *stream = reinterpret_cast<Stream>(all.streams.Create(flags != STREAM_NON_BLOCKING));
    return SUCCESS;
})
CHECKED(cuStreamDestroy_v2, (Stream stream), {
    all.streams.Destroy(all.streams.Find(stream));
    return SUCCESS;
})
CHECKED(cuStreamWaitEvent, (Stream stream, EventHandle event, unsigned), {
    all.streams.Wait(*all.streams.Find(stream), EventOf(all, event, "cuStreamWaitEvent"));
    return SUCCESS;
})
CHECKED(cuStreamSynchronize, (Stream stream), {
    all.streams.Synchronize(*all.streams.Find(stream));
    return SUCCESS;
})
CHECKED(cuEventCreate, (EventHandle * event, unsigned), {
    auto *created = new RecordedEvent;
    all.events.insert(created);
    *event = reinterpret_cast<EventHandle>(created);
    return SUCCESS;
})
CHECKED(cuEventDestroy_v2, (EventHandle event), {
    RecordedEvent &destroyed = EventOf(all, event, "cuEventDestroy");
    all.events.erase(&destroyed);
    delete &destroyed;
    return SUCCESS;
})
CHECKED(cuEventRecord, (EventHandle event, Stream stream), {
    all.streams.Record(*all.streams.Find(stream), EventOf(all, event, "cuEventRecord"));
    return SUCCESS;
})
CHECKED(cuEventSynchronize, (EventHandle event), {
    all.streams.Synchronize(EventOf(all, event, "cuEventSynchronize"));
    return SUCCESS;
})
CHECKED(cuMemPoolCreate, (Pool * pool, const PoolProperties *properties), {
    if (properties->allocation_type != 1 || properties->location_type != 1) {
        Violation("a memory pool is not of a device's memory");
    }
    auto *created = new uint64_t(0);
    all.pools.insert(created);
    *pool = reinterpret_cast<Pool>(created);
    return SUCCESS;
})
CHECKED(cuMemPoolSetAttribute, (Pool pool, int attribute, void *value), {
    if (attribute != POOL_RELEASE_THRESHOLD) {
        Violation("an unknown attribute of a memory pool is set");
    }
    *Known(all.pools, pool, "cuMemPoolSetAttribute") = all.pool_keeps = *static_cast<uint64_t *>(value);
    return SUCCESS;
})
CHECKED(cuMemPoolTrimTo, (Pool pool, size_t), {
    Known(all.pools, pool, "cuMemPoolTrimTo");
    return SUCCESS;
})
CHECKED(cuMemPoolDestroy, (Pool pool), {
    uint64_t *destroyed = Known(all.pools, pool, "cuMemPoolDestroy");
    all.pools.erase(destroyed);
    delete destroyed;
    return SUCCESS;
})
CHECKED(cuMemAllocFromPoolAsync, (DevicePointer * pointer, size_t bytes, Pool pool, Stream stream), {
    Known(all.pools, pool, "cuMemAllocFromPoolAsync");
    if (bytes == 0) {
        Violation("0 bytes are allocated, which the driver refuses");
    }
    if (all.device_bytes + bytes > all.device_limit) {
        return OUT_OF_MEMORY;
    }
    all.device_bytes += bytes;
    const auto allocation = all.memory.Reserve(bytes);
    allocation->stream = stream;
    *pointer = reinterpret_cast<DevicePointer>(allocation->data);
    all.streams.Add(*all.streams.Find(stream), "an allocation",
                    [&all, allocation] { all.memory.Begin(*allocation); });
    return SUCCESS;
})
CHECKED(cuMemFreeAsync, (DevicePointer pointer, Stream stream), {
    const auto allocation = all.memory.MarkReleased(DeviceData(pointer));
    // What comes later in the same stream may have it at once; others when it is back.
    const bool is_back = allocation->stream == stream;
    all.device_bytes -= is_back ? allocation->bytes : 0;
    all.streams.Add(*all.streams.Find(stream), "a release", [&all, allocation, is_back] {
        all.device_bytes -= is_back ? 0 : allocation->bytes;
        all.memory.End(*allocation);
    });
    return SUCCESS;
})
// Not ours: for cuFile, which benchmarks compare with.
CHECKED(cuMemAlloc_v2, (DevicePointer * pointer, size_t bytes), {
    const auto allocation = all.memory.Reserve(bytes);
    all.memory.Open();
    all.memory.Begin(*allocation);
    all.memory.Close();
    *pointer = reinterpret_cast<DevicePointer>(allocation->data);
    return SUCCESS;
})
CHECKED(cuMemFree_v2, (DevicePointer pointer), {
    all.streams.SynchronizeAll();
    const auto allocation = all.memory.MarkReleased(DeviceData(pointer));
    all.memory.Open();
    all.memory.End(*allocation);
    all.memory.Close();
    return SUCCESS;
})
CHECKED(cuMemGetInfo_v2, (size_t *free, size_t *total), {
    *total = all.device_limit;
    *free = all.device_limit - all.device_bytes;
    return SUCCESS;
})
CHECKED(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned), {
    *pointer = all.pinned.Allocate(bytes);
    return SUCCESS;
})
CHECKED(cuMemFreeHost, (void *pointer), {
    all.streams.SynchronizeAll(); // as the driver does
    all.pinned.Free(pointer);
    return SUCCESS;
})
CHECKED(cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned), {
    all.pinned.Add(pointer, bytes);
    return SUCCESS;
})
CHECKED(cuMemHostUnregister, (void *pointer), {
    all.pinned.Remove(pointer); // what still copies from it finds that
    return SUCCESS;
})
CHECKED(cuMemcpyHtoDAsync_v2, (DevicePointer to, const void *from, size_t bytes, Stream stream), {
    PinnedCopies copies;
    copies.Add(all.pinned, from, DeviceData(to), bytes, "cuMemcpyHtoDAsync");
    all.streams.Add(*all.streams.Find(stream), "a copy to the device", [&all, copies] {
        copies.Require(all.memory, all.pinned, "a copy to the device");
        copies.Run();
    });
    return SUCCESS;
})
CHECKED(cuMemcpyBatchAsync_v2,
        (DevicePointer * to, DevicePointer *from, size_t *bytes, size_t count, CopyAttributes *attributes,
         size_t *first_of_attributes, size_t attributes_count, Stream stream),
        {
            if (count == 0 || attributes_count != 1 || *first_of_attributes != 0 ||
                attributes->source_order != 1 || attributes->from.type != 2 || attributes->to.type != 1) {
                Violation("a batch of copies has attributes that it should not have");
            }
            PinnedCopies copies;
            for (size_t i = 0; i < count; i++) {
                copies.Add(all.pinned, DeviceData(from[i]), DeviceData(to[i]), bytes[i],
                           "cuMemcpyBatchAsync");
            }
            all.streams.Add(*all.streams.Find(stream), "a batch of copies", [&all, copies] {
                copies.Require(all.memory, all.pinned, "a batch of copies");
                copies.Run();
            });
            return SUCCESS;
        })
CHECKED(cuMemcpyDtoHAsync_v2, (void *to, DevicePointer from, size_t bytes, Stream stream), {
    all.pinned.RequireInside(to, bytes, "cuMemcpyDtoHAsync");
    std::memset(to, 0xdd, bytes); // what is read too early
    all.streams.Add(*all.streams.Find(stream), "a copy from the device", [&all, to, from, bytes] {
        all.memory.RequireUsable(DeviceData(from), bytes, "a copy from the device");
        std::memcpy(to, DeviceData(from), bytes);
    });
    return SUCCESS;
})
CHECKED(cuMemcpyDtoDAsync_v2, (DevicePointer to, DevicePointer from, size_t bytes, Stream stream), {
    all.streams.Add(*all.streams.Find(stream), "a copy on the device", [&all, to, from, bytes] {
        all.memory.RequireUsable(DeviceData(from), bytes, "a copy on the device");
        all.memory.RequireUsable(DeviceData(to), bytes, "a copy on the device");
        std::memcpy(const_cast<uint8_t *>(DeviceData(to)), DeviceData(from), bytes);
    });
    return SUCCESS;
})
CHECKED(cuMemsetD8Async, (DevicePointer to, unsigned char byte, size_t count, Stream stream), {
    all.streams.Add(*all.streams.Find(stream), "filling memory", [&all, to, byte, count] {
        all.memory.RequireUsable(DeviceData(to), count, "filling memory");
        std::memset(const_cast<uint8_t *>(DeviceData(to)), byte, count);
    });
    return SUCCESS;
})
// Not ours: tests read results by it, in the default stream, as a consumer does.
CHECKED(cuMemcpyDtoH_v2, (void *to, DevicePointer from, size_t bytes), {
    all.streams.Add(all.streams.Legacy(), "a consumer's copy", [&all, to, from, bytes] {
        all.memory.RequireUsable(DeviceData(from), bytes, "a consumer's copy");
        std::memcpy(to, DeviceData(from), bytes);
    });
    all.streams.Synchronize(all.streams.Legacy());
    return SUCCESS;
})
CHECKED(cuModuleLoadData, (Module * module, const void *image), {
    const auto *data = static_cast<const uint8_t *>(image);
    auto *loaded = new LoadedModule;
    if (const int architecture = ArchitectureOf(data)) {
        if (architecture / 10 != ARCHITECTURE / 10 || architecture > ARCHITECTURE) {
            Violation("a cubin for sm_" + std::to_string(architecture) + " is loaded onto sm_" +
                      std::to_string(ARCHITECTURE));
        }
        loaded->names.assign(reinterpret_cast<const char *>(data), SizeOf(data));
    } else {
        loaded->names = reinterpret_cast<const char *>(data); // PTX ends with 0
    }
    all.modules.insert(loaded);
    *module = reinterpret_cast<Module>(loaded);
    return SUCCESS;
})
CHECKED(cuModuleUnload, (Module module), {
    LoadedModule *unloaded = Known(all.modules, module, "cuModuleUnload");
    all.modules.erase(unloaded);
    delete unloaded;
    return SUCCESS;
})
CHECKED(cuModuleGetFunction, (Function * function, Module module, const char *name), {
    const LoadedModule *loaded = Known(all.modules, module, "cuModuleGetFunction");
    const std::string section = std::string(".text.") + name + '\0',
                      entry = std::string(".entry ") + name + "(";
    const HostKernel *kernel = FindHostKernel(name);
    if (!kernel || (loaded->names.find(section) == std::string::npos &&
                    loaded->names.find(entry) == std::string::npos)) {
        Violation(std::string("there is no kernel ") + name);
    }
    *function = reinterpret_cast<Function>(const_cast<HostKernel *>(kernel));
    return SUCCESS;
})
CHECKED(cuLaunchKernel,
        (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
         unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void **arguments,
         void **extra),
        {
            const auto *kernel = reinterpret_cast<const HostKernel *>(function);
            if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != BLOCK || block_y != 1 ||
                block_z != 1 || shared_bytes != 0 || extra) {
                Violation(std::string(kernel->name) + " is launched with a shape that it does not have");
            }
            const auto *given = static_cast<const uint8_t *>(arguments[0]);
            const std::vector<uint8_t> copied(given, given + kernel->argument_bytes);
            const PinnedCopies pulled = PulledBy(all.memory, all.pinned, *kernel, given);
            all.streams.Add(*all.streams.Find(stream), std::string("kernel ") + kernel->name,
                            [&all, kernel, copied, grid_x, pulled] {
                                pulled.Require(all.memory, all.pinned, "kernel pull_pieces");
                                // Blocks run in any order on a GPU.
                                for (unsigned block = grid_x; block-- > 0;) {
                                    kernel->run(copied.data(), block);
                                }
                            });
            return SUCCESS;
        })

extern "C" __attribute__((visibility("default"))) Result cuGetErrorName(Result result, const char **text) {
    *text = result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}

extern "C" __attribute__((visibility("default"))) Result cuGetErrorString(Result, const char **text) {
    *text = "a failure that a test asked for";
    return SUCCESS;
}

} // namespace rawduck::gpu::checker
