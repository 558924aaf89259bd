//! The order in which a device and this process see memory that both have.
#pragma once

#include <atomic>

namespace rawduck {

//! What was written to memory before is there for the device when it sees what is written next: a doorbell.
inline void FenceBeforeDoorbell() {
#if defined(__aarch64__)
    // Registers of devices are outside the domain of the processors (ish), to which fences of the language are limited.
    asm volatile("dmb oshst" ::: "memory");
#else
    // x86 writes to memory and registers in the order of the program, and a device sees them so: only the compiler
    // must not change it.
    std::atomic_thread_fence(std::memory_order_release);
#endif
}

//! What is read from memory next is as new as what was read before: a phase bit that the device wrote last.
inline void FenceBehindPhase() {
#if defined(__aarch64__)
    asm volatile("dmb oshld" ::: "memory");
#else
    std::atomic_thread_fence(std::memory_order_acquire); // the same of reads
#endif
}

//! What was written before is there for the device before anything is read that it writes.
inline void FenceBetweenWriteAndRead() {
#if defined(__aarch64__)
    asm volatile("dmb osh" ::: "memory");
#else
    std::atomic_thread_fence(std::memory_order_seq_cst); // the one order that x86 does not keep by itself
#endif
}

} // namespace rawduck
