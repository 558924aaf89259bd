//! What the checker of driver calls knows.
#pragma once

#include "cuda_checker/streams.hpp"

#include "gpu/device/cuda/driver_api.hpp"

#include <atomic>
#include <mutex>
#include <set>
#include <string>

namespace rawduck::gpu::checker {

using namespace rawduck::gpu::cuda;

constexpr Result INJECTED = 999; // CUDA_ERROR_UNKNOWN
constexpr uint64_t ALL_MEMORY = 8ull << 30;

struct LoadedModule {
    std::string names; //!< where names of kernels are looked for
};

struct Checker {
    std::recursive_mutex mutex;
    DeviceMemory memory;
    PinnedMemory pinned;
    Streams streams{memory};
    std::set<RecordedEvent *> events;
    std::set<LoadedModule *> modules;
    std::set<uint64_t *> pools; //!< what each keeps
    uint64_t pool_keeps = 0;    //!< the last one that was told
    bool is_capturing = false;
    std::atomic<bool> is_held{false};
    uint64_t contexts = 0;
    uint64_t device_bytes = 0, device_limit = ALL_MEMORY;
    uint64_t calls = 0, failing_call = 0;
    Result failure = INJECTED;
    std::string failed;
    bool is_started = false;
};

//! Used under its mutex, but for is_held. Never destroyed: objects of others that live as long give back memory behind it.
Checker &All();

} // namespace rawduck::gpu::checker
