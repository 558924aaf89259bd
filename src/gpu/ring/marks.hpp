#pragma once
//! What a kernel and threads of the processor tell each other while both run, and the time. On the emulated device both are
//! threads of this process, so that the same order of stores and loads is needed, and is seen by ThreadSanitizer.
#include "gpu/decode/lanes.hpp"

#ifndef __CUDACC__
#include "common/clock.hpp"
#endif

namespace rawduck::gpu {

//! Behind it one sees what was written before the value was stored, by whomever: another block, or the processor.
GPU_FUNCTION u64 LoadMark(const u64 *mark) {
#ifdef __CUDACC__
    u64 value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(mark) : "memory");
    return value;
#else
    return __atomic_load_n(mark, __ATOMIC_ACQUIRE);
#endif
}

//! After all that this block has written before its last barrier, and this lane since.
GPU_FUNCTION void StoreMark(u64 *mark, u64 value) {
#ifdef __CUDACC__
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(mark), "l"(value) : "memory");
#else
    __atomic_store_n(mark, value, __ATOMIC_RELEASE);
#endif
}

//! Each number once. In memory of the device: there are GPUs whose atomic operations do not reach that of the host.
GPU_FUNCTION u64 TakeTicket(u64 *next) {
#ifdef __CUDACC__
    return atomicAdd(next, 1ull);
#else
    return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
#endif
}

//! Whether it was 0, and is `value` now. In memory of the device.
GPU_FUNCTION bool SetFirst(u64 *word, u64 value) {
#ifdef __CUDACC__
    return atomicCAS(word, 0ull, value) == 0;
#else
    u64 expected = 0;
    return __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
}

//! Since some moment in the past. A GPU's clock may go on in steps of a microsecond.
GPU_FUNCTION u64 ElapsedNs() {
#ifdef __CUDACC__
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#else
    return MonotonicNs();
#endif
}

//! Between two looks at a mark. Emulated blocks share few processors with those who serve them, and sleep longer.
GPU_FUNCTION void RestBetweenLooks() {
#ifdef __CUDACC__
    __nanosleep(100);
#else
    const timespec pause = {0, 20000};
    nanosleep(&pause, nullptr);
#endif
}

//! The one that this block runs on, from 1; 0: none, it is emulated.
GPU_FUNCTION u32 OwnMultiprocessor() {
#ifdef __CUDACC__
    u32 number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number + 1;
#else
    return 0;
#endif
}

} // namespace rawduck::gpu
