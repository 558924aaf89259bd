//! What python/rawduck/measuring/gpu/ring.py calls, by ctypes: reads that a device asks for and this process serves. Only
//! benchmarks do. A run belongs to one thread. What can fail returns a negative number; rawduck_gpu_error says why.
#pragma once

#include <cstdint>

namespace rawduck::gpu {

extern "C" {

struct rawduck_gpu_ring_options {
    const char *device;      //!< "" for what RAWDUCK_GPU in the environment says
    const char *target;      //!< an absolute path; it is only read
    const uint64_t *offsets; //!< of each read, bytes
    uint64_t reads;          //!< at least 1
    uint64_t read_bytes;     //!< of each
    uint64_t blocks;         //!< thread blocks that ask
    uint64_t slots;          //!< of the ring
    uint64_t threads;        //!< that serve it
    uint64_t patience_ns;    //!< how long a block waits for one read
};

struct rawduck_gpu_ring_results {
    uint64_t data;        //!< address on the device: of all reads, one behind the other
    uint64_t nanoseconds; //!< the same: 8 bytes for each read, from its ticket until it was there
    uint64_t server_cpu_ns;
    uint64_t blocks;               //!< that were started
    uint64_t multiprocessors_held; //!< that they ran on
    uint64_t multiprocessors;      //!< of the device; 0: it has none
    const char *engine;            //!< valid until the run is closed
};

//! Opens all that it takes. `*run` is to be given back by rawduck_gpu_ring_close, which ends what is under way. -1: failed.
int32_t rawduck_gpu_ring_open(const rawduck_gpu_ring_options *options, void **run);
//! Starts the kernel, and the threads that serve it. -1: failed.
int32_t rawduck_gpu_ring_start(void *run);
//! 0: all is there. 2: not yet, call again (it returns every 50 ms or so, for its caller to look for signals). -1: failed.
int32_t rawduck_gpu_ring_wait(void *run);
//! When all is there. -1: failed.
int32_t rawduck_gpu_ring_read_results(void *run, rawduck_gpu_ring_results *results);
//! Ends the kernel: rawduck_gpu_ring_wait fails soon, unless all is there.
void rawduck_gpu_ring_abort(void *run);
//! Where reads do not come within 5 seconds, all that the run has is left to the process.
void rawduck_gpu_ring_close(void *run);

} // extern "C"

} // namespace rawduck::gpu
