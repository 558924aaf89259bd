//! The kernels as a GPU takes them, made from kernels.cu when rawduck was built (cmake/gpu_kernels.cmake).
#pragma once

#include <cstddef>
#include <vector>

namespace rawduck::gpu {

struct KernelImage {
    int architecture; //!< 90 for sm_90
    bool is_ptx;      //!< text, which the driver compiles for GPUs from this architecture on
    const unsigned char *data;
    size_t size;
};

//! Empty where rawduck was built without NVRTC.
std::vector<KernelImage> KernelImages();

} // namespace rawduck::gpu
