#include "gpu/device/open_device.hpp"

#include "common/error.hpp"
#include "gpu/device/cuda/cuda_device.hpp"
#include "gpu/device/emulated.hpp"

#include <cstdlib>

namespace rawduck::gpu {
namespace {

//! The number in "0", "cuda" or "cuda:0"; -1 where it is none of these.
int OrdinalIn(const std::string &name) {
    constexpr const char *PREFIX = "cuda:";
    std::string digits = name;
    if (name.rfind(PREFIX, 0) == 0) {
        digits = name.substr(5);
    } else if (name == "cuda") {
        digits = "0";
    }
    const bool is_number =
        !digits.empty() && digits.size() <= 3 && digits.find_first_not_of("0123456789") == std::string::npos;
    return is_number ? std::stoi(digits) : -1;
}

} // namespace

std::shared_ptr<Device> OpenDevice(const std::string &name) {
    const char *variable = std::getenv("RAWDUCK_GPU");
    std::string wanted = !name.empty() ? name : variable ? variable : "";
    wanted = wanted.empty() ? "0" : wanted;
    if (wanted == "emulated") {
        return std::make_shared<EmulatedDevice>();
    }
    const int ordinal = OrdinalIn(wanted);
    if (ordinal < 0) {
        throw rawduck::Error(ErrorCode::INVALID,
                             "there is no device \"" + wanted +
                                 "\"; name a GPU by its number, as 0 or \"cuda:0\", or pass \"emulated\" to "
                                 "decode in host memory");
    }
    return std::make_shared<cuda::CudaDevice>(cuda::Gpu::Get(ordinal));
}

} // namespace rawduck::gpu
