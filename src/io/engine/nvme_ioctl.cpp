#include "io/engine/nvme_ioctl.hpp"

#include "io/device/nvme_device.hpp"

namespace rawduck {
namespace {

class NvmeIoctlDevice final : public NvmeDevice {
  public:
    NvmeIoctlDevice(const Target &target, const DeviceOptions &options, const std::string &reason)
        : NvmeDevice(target, options) {
        caps_.engine = "nvme_ioctl";
        caps_.engine_reason = reason;
        caps_.max_queue_depth = 1; // a second command could only wait for the first
    }

    std::unique_ptr<Queue> CreateQueue(uint32_t, QueueUse) override { return CreateSynchronousQueue(); }
};

} // namespace

std::unique_ptr<Device> OpenNvmeIoctlDevice(const Target &target, const DeviceOptions &options,
                                            const std::string &reason) {
    return std::make_unique<NvmeIoctlDevice>(target, options, reason);
}

} // namespace rawduck
