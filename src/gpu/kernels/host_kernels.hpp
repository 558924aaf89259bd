//! All kernels by their names, as loops in this process.
#pragma once

#include "gpu/kernels/arguments.hpp"

namespace rawduck::gpu {

struct HostKernel {
    const char *name;
    u64 argument_bytes;
    //! One thread block. `arguments`: the kernel's structure.
    void (*run)(const void *arguments, u32 block);
};

//! Null where there is none. Thread-safe.
const HostKernel *FindHostKernel(const char *name);

//! Of all kernels; `count` becomes how many there are.
const HostKernel *HostKernels(u64 &count);

} // namespace rawduck::gpu
