//! The driver of this machine, opened when it is first needed.
#pragma once

#include "gpu/device/cuda/driver_api.hpp"

#include <string>

namespace rawduck::gpu::cuda {

class Driver {
  public:
    //! That of this process; once opened it stays. Throws Error where there is none, it is too old, or has no device: then
    //! the next call tries again. Thread-safe.
    static const Driver &Get();

    int Version() const { return version_; } //!< as CUDA numbers it: 12040 is 12.4
    int DeviceCount() const { return device_count_; }

    //! Throws Error naming the function, what was tried, and what the driver says.
    void Check(Result result, const char *function, const std::string &tried) const;
    std::string Describe(Result result) const;

#define RAWDUCK_CUDA_FIELD(FIELD, SYMBOL, ARGUMENTS)                                                         \
    Result(*FIELD) ARGUMENTS = nullptr;                                                                      \
    static constexpr const char *FIELD##_symbol = #SYMBOL;
    RAWDUCK_CUDA_FUNCTIONS(RAWDUCK_CUDA_FIELD)
    RAWDUCK_CUDA_NEW_FUNCTIONS(RAWDUCK_CUDA_FIELD)
#undef RAWDUCK_CUDA_FIELD

  private:
    Driver() = default;
    static Driver *Open();
    void Find(void *library, const std::string &path);

    int version_ = 0;
    int device_count_ = 0;
};

//! Calls a function of the driver; where it fails, throws Error saying what was tried.
#define RAWDUCK_CUDA(DRIVER, FIELD, TRIED, ...)                                                              \
    (DRIVER).Check((DRIVER).FIELD(__VA_ARGS__), (DRIVER).FIELD##_symbol, TRIED)

} // namespace rawduck::gpu::cuda
