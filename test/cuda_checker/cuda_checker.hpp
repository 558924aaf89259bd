//! A checker of how NVIDIA's driver is called, loaded in its place by tests (RAWDUCK_TEST_LIBCUDA). It is no GPU: kernels
//! are run as loops on memory of this process, in the order that CUDA's streams allow, as late as possible. Whatever a
//! caller must not do ends the process with a sentence: memory that is touched before its allocation or after its release
//! in the order of streams, or by the host; copies from memory that is not pinned, or that is changed before the copy is
//! done; handles that are destroyed or unknown; calls without a context.
//!
//! RAWDUCK_CHECKER_VERSION: of the driver that it says to be; without it 12040, which is 12.4.
//! RAWDUCK_CHECKER_SEED: 0 runs everything as late as possible, other numbers at random times.
#pragma once

#include <cstdint>

extern "C" {

struct rawduck_checker_counts {
    uint64_t memory; //!< allocations that are not freed
    uint64_t streams, events, modules, pools, contexts;
    uint64_t pinned_bytes;
    uint64_t calls;      //!< of all functions, since the last rawduck_checker_fail
    uint64_t pool_keeps; //!< bytes of freed memory, that of the last pool which was told
};

//! Of what exists, once everything is done that was called.
void rawduck_checker_count(rawduck_checker_counts *counts);
//! The `call`-th call from now on fails with `result` (1 is the next one; 0: none does), and counts them from now on.
void rawduck_checker_fail(uint64_t call, int result);
//! The function whose call failed; "" where none did.
const char *rawduck_checker_failed();
//! Runs everything as late as possible for 0, else at times that are drawn from the seed.
void rawduck_checker_seed(unsigned seed);
//! Whether the device does not come to an end of what it was told, for who waits for all of it (cuCtxSynchronize).
void rawduck_checker_hold(int is_held);
//! Whether somebody captures a graph meanwhile, in the strictest mode: ends the process at what would end that.
void rawduck_checker_capture(int is_capturing);
//! Bytes of device memory that there are; beyond, allocations fail.
void rawduck_checker_limit(uint64_t bytes);

} // extern "C"
