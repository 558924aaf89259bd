//! What tests ask of the checker.
#include "cuda_checker/cuda_checker.hpp"

#include "cuda_checker/checker.hpp"

namespace rawduck::gpu::checker {

Checker &All() {
    static auto &all = *new Checker;
    return all;
}

} // namespace rawduck::gpu::checker

#define CHECKER_EXPORT extern "C" __attribute__((visibility("default")))

using rawduck::gpu::checker::All;

CHECKER_EXPORT void rawduck_checker_count(rawduck_checker_counts *counts) {
    auto &all = All();
    const std::lock_guard<std::recursive_mutex> lock(all.mutex);
    all.streams.SynchronizeAll();
    *counts = {all.memory.Count(), all.streams.Count(), all.events.size(),
               all.modules.size(), all.pools.size(),    all.contexts,
               all.pinned.Bytes(), all.calls,           all.pool_keeps};
}

CHECKER_EXPORT void rawduck_checker_fail(uint64_t call, int result) {
    auto &all = All();
    const std::lock_guard<std::recursive_mutex> lock(all.mutex);
    all.calls = 0;
    all.failing_call = call;
    all.failure = result;
    all.failed.clear();
}

CHECKER_EXPORT const char *rawduck_checker_failed() {
    return All().failed.c_str();
}

CHECKER_EXPORT void rawduck_checker_seed(unsigned seed) {
    auto &all = All();
    const std::lock_guard<std::recursive_mutex> lock(all.mutex);
    all.streams.SetSeed(seed);
}

CHECKER_EXPORT void rawduck_checker_hold(int is_held) {
    All().is_held = is_held != 0;
}

CHECKER_EXPORT void rawduck_checker_capture(int is_capturing) {
    auto &all = All();
    const std::lock_guard<std::recursive_mutex> lock(all.mutex);
    all.is_capturing = is_capturing != 0;
}

CHECKER_EXPORT void rawduck_checker_limit(uint64_t bytes) {
    auto &all = All();
    const std::lock_guard<std::recursive_mutex> lock(all.mutex);
    all.device_limit = bytes == 0 ? rawduck::gpu::checker::ALL_MEMORY : bytes;
}
