//! The checker in place of NVIDIA's driver: what a test opens by it must have been given back at the end.
#pragma once

#include "cuda_checker/cuda_checker.hpp"
#include "gpu/device/cuda/gpu.hpp"
#include "gpu/kernels/host_kernels.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <string>
#include <vector>

namespace rawduck::gpu::testing {

//! What the checker takes for PTX.
inline std::vector<KernelImage> Images() {
    static const std::string &text = *[] {
        auto *made = new std::string;
        u64 count = 0;
        const HostKernel *kernels = HostKernels(count);
        for (u64 i = 0; i < count; i++) {
            *made += std::string(".entry ") + kernels[i].name + "(\n";
        }
        return made;
    }();
    return {{75, true, reinterpret_cast<const unsigned char *>(text.c_str()), text.size() + 1}};
}

class CheckedDriver : public ::testing::Test {
  protected:
    static constexpr int UNKNOWN = 999;

    void SetUp() override {
        setenv("RAWDUCK_TEST_FUNCTIONS", "1", 1);
        setenv("RAWDUCK_TEST_LIBCUDA", RAWDUCK_CUDA_CHECKER, 1);
        setenv("RAWDUCK_CHECKER_VERSION", "13000",
               1); // those of Python have an older one, and copy by kernels
        driver_ = &cuda::Driver::Get();
        void *checker = dlopen(RAWDUCK_CUDA_CHECKER, RTLD_NOW);
        ASSERT_NE(checker, nullptr);
        Find(count_, checker, "rawduck_checker_count");
        Find(fail_, checker, "rawduck_checker_fail");
        Find(seed_, checker, "rawduck_checker_seed");
        Find(failed_, checker, "rawduck_checker_failed");
        Find(limit_, checker, "rawduck_checker_limit");
        Find(hold_, checker, "rawduck_checker_hold");
    }

    void TearDown() override {
        fail_(0, UNKNOWN);
        seed_(0);
        limit_(0);
        const rawduck_checker_counts left = Counts();
        EXPECT_EQ(left.memory + left.streams + left.events + left.modules + left.pools + left.contexts +
                      left.pinned_bytes,
                  0u);
    }

    rawduck_checker_counts Counts() const {
        rawduck_checker_counts counts;
        count_(&counts);
        return counts;
    }

    std::shared_ptr<cuda::Gpu> Open() const { return std::make_shared<cuda::Gpu>(*driver_, 0, Images()); }

    template <class FUNCTION> static void Find(FUNCTION &function, void *library, const char *name) {
        function = reinterpret_cast<FUNCTION>(dlsym(library, name));
        ASSERT_NE(function, nullptr) << name;
    }

    const cuda::Driver *driver_ = nullptr;
    decltype(&rawduck_checker_count) count_ = nullptr;
    decltype(&rawduck_checker_fail) fail_ = nullptr;
    decltype(&rawduck_checker_seed) seed_ = nullptr;
    decltype(&rawduck_checker_failed) failed_ = nullptr;
    decltype(&rawduck_checker_limit) limit_ = nullptr;
    decltype(&rawduck_checker_hold) hold_ = nullptr;
};

} // namespace rawduck::gpu::testing
