#include "gpu/exports/ring_interface.hpp"

#include "gpu/device/open_device.hpp"
#include "gpu/exports/guarded.hpp"
#include "gpu/ring/host/ring_run.hpp"
#include "io/open_device.hpp"

#include <chrono>

#define RAWDUCK_RING_EXPORT extern "C" __attribute__((visibility("default")))

namespace rawduck::gpu {
namespace {

constexpr std::chrono::milliseconds SIGNALS_EVERY{50};
constexpr std::chrono::seconds READS_END_WITHIN{5};

//! Read only, past what caches it, without its lock: benchmarks read what lies still.
std::unique_ptr<BlockIo> OpenToRead(const std::string &name) {
    DeviceOptions options;
    options.read_only = true;
    const Target target = ResolveTarget(name);
    return std::make_unique<BlockIo>(rawduck::OpenDevice(target, options), BlockIoOptions(), target.name,
                                     std::make_shared<IoStats>());
}

RingRun &RunOf(void *run) {
    return *static_cast<RingRun *>(run);
}

} // namespace

RAWDUCK_RING_EXPORT int32_t rawduck_gpu_ring_open(const rawduck_gpu_ring_options *options, void **run) {
    return Guarded(int32_t{-1}, [&] {
        RingOptions wanted;
        wanted.offsets.assign(options->offsets, options->offsets + options->reads);
        wanted.read_bytes = options->read_bytes;
        wanted.blocks = options->blocks;
        wanted.slots = options->slots;
        wanted.threads = options->threads;
        wanted.patience = std::chrono::nanoseconds(options->patience_ns);
        *run = new RingRun(OpenDevice(options->device), OpenToRead(options->target), std::move(wanted));
        return int32_t{0};
    });
}

RAWDUCK_RING_EXPORT int32_t rawduck_gpu_ring_start(void *run) {
    return Guarded(int32_t{-1}, [&] {
        RunOf(run).Start();
        return int32_t{0};
    });
}

RAWDUCK_RING_EXPORT int32_t rawduck_gpu_ring_wait(void *run) {
    constexpr int32_t NOT_YET = 2;
    return Guarded(int32_t{-1}, [&] { return RunOf(run).Wait(SIGNALS_EVERY) ? int32_t{0} : NOT_YET; });
}

RAWDUCK_RING_EXPORT int32_t rawduck_gpu_ring_read_results(void *run, rawduck_gpu_ring_results *results) {
    return Guarded(int32_t{-1}, [&] {
        const RingRun &ended = RunOf(run);
        results->data = reinterpret_cast<uint64_t>(ended.Data());
        results->nanoseconds = reinterpret_cast<uint64_t>(ended.Nanoseconds());
        results->server_cpu_ns = ended.ServerCpuNs();
        results->blocks = ended.Blocks();
        results->multiprocessors_held = ended.MultiprocessorsHeld();
        results->multiprocessors = ended.Multiprocessors();
        results->engine = ended.Engine().c_str();
        return int32_t{0};
    });
}

RAWDUCK_RING_EXPORT void rawduck_gpu_ring_abort(void *run) {
    if (run) {
        RunOf(run).Abort();
    }
}

RAWDUCK_RING_EXPORT void rawduck_gpu_ring_close(void *run) {
    std::unique_ptr<RingRun> closed(static_cast<RingRun *>(run));
    if (closed && !closed->EndWithin(READS_END_WITHIN)) {
        (void)closed.release(); // a read that hangs may still come, and is then written to its memory
    }
}

} // namespace rawduck::gpu
