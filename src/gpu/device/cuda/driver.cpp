#include "gpu/device/cuda/driver.hpp"

#include "common/error.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <mutex>

namespace rawduck::gpu::cuda {
namespace {

constexpr int LEAST_VERSION = 12000; // of machine code that NVRTC 12 makes
constexpr int BATCH_VERSION = 13000;
constexpr const char *INSTEAD =
    "; device=\"emulated\", or RAWDUCK_GPU=emulated in the environment, decodes in host memory";

[[noreturn]] void Refuse(const std::string &why) {
    throw rawduck::Error(ErrorCode::UNSUPPORTED, why + INSTEAD);
}

//! Tests of how the driver is called load another library in its place.
std::string LibraryPath() {
    const char *for_tests = std::getenv("RAWDUCK_TEST_FUNCTIONS");
    const char *path = for_tests && *for_tests ? std::getenv("RAWDUCK_TEST_LIBCUDA") : nullptr;
    return path && *path ? path : "libcuda.so.1";
}

std::string VersionText(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

} // namespace

void Driver::Find(void *library, const std::string &path) {
#define RAWDUCK_CUDA_FIND(FIELD, SYMBOL, ARGUMENTS)                                                          \
    FIELD = reinterpret_cast<Result(*) ARGUMENTS>(dlsym(library, #SYMBOL));                                  \
    if (!FIELD) {                                                                                            \
        Refuse("the NVIDIA driver (" + path + ") has no " #SYMBOL ": it is older than CUDA " +               \
               VersionText(LEAST_VERSION) + "; install a newer one");                                        \
    }
    RAWDUCK_CUDA_FUNCTIONS(RAWDUCK_CUDA_FIND)
#undef RAWDUCK_CUDA_FIND
#define RAWDUCK_CUDA_FIND(FIELD, SYMBOL, ARGUMENTS)                                                          \
    FIELD = reinterpret_cast<Result(*) ARGUMENTS>(dlsym(library, #SYMBOL));
    RAWDUCK_CUDA_NEW_FUNCTIONS(RAWDUCK_CUDA_FIND)
#undef RAWDUCK_CUDA_FIND
}

Driver *Driver::Open() {
    const std::string path = LibraryPath();
    void *library =
        dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); // never closed: the driver has threads of its own
    if (!library) {
        const char *why = dlerror();
        Refuse("there is no GPU that can be used: the NVIDIA driver could not be opened (" +
               std::string(why ? why : path) + "); install it");
    }
    std::unique_ptr<Driver> driver(new Driver);
    driver->Find(library, path);
    const Result started = driver->init(0);
    if (started != SUCCESS && started != NO_DEVICE) {
        Refuse("the NVIDIA driver does not start: cuInit: " + driver->Describe(started) +
               "; see whether nvidia-smi shows the GPU");
    }
    RAWDUCK_CUDA(*driver, driver_version, "asking the NVIDIA driver for its version", &driver->version_);
    if (driver->version_ < LEAST_VERSION) {
        Refuse("the NVIDIA driver is for CUDA " + VersionText(driver->version_) + ", and " +
               VersionText(LEAST_VERSION) + " is the least that will do; install a newer one");
    }
    if (driver->version_ < BATCH_VERSION) {
        driver->copy_batch = nullptr; // of this name with other arguments
    }
    if (started == SUCCESS) {
        RAWDUCK_CUDA(*driver, device_count, "counting the GPUs", &driver->device_count_);
    }
    if (driver->device_count_ == 0) {
        Refuse("the NVIDIA driver finds no GPU; see nvidia-smi, and CUDA_VISIBLE_DEVICES in the environment");
    }
    return driver.release();
}

const Driver &Driver::Get() {
    static std::mutex &mutex = *new std::mutex;
    static const Driver *opened = nullptr;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!opened) {
        opened = Open();
    }
    return *opened;
}

std::string Driver::Describe(Result result) const {
    const char *name = nullptr, *text = nullptr;
    if (error_name(result, &name) != SUCCESS || !name) {
        return "error " + std::to_string(result);
    }
    return name + (error_text(result, &text) == SUCCESS && text ? std::string(" (") + text + ")" : "");
}

void Driver::Check(Result result, const char *function, const std::string &tried) const {
    if (result != SUCCESS) {
        throw rawduck::Error(ErrorCode::IO, tried + " failed: " + function + ": " + Describe(result));
    }
}

} // namespace rawduck::gpu::cuda
