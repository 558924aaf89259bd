//! What the engines io_uring_cmd, nvme_ioctl, vfio and xNVMe's for namespaces share: an NVMe namespace that takes
//! commands without the kernel's block layer in between.
#pragma once

#include "common/memory/aligned_buffer.hpp"
#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/inspect.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/target.hpp"

#include <linux/nvme_ioctl.h>
#include <optional>

namespace rawduck {

//! Opcode of the NVM command set.
constexpr uint8_t NVME_FLUSH = 0x00;

//! A read or write as an NVMe command.
nvme_passthru_cmd64 MakeNvmeTransfer(const Command &command, uint32_t namespace_id, uint32_t lba_size);

//! What became of it: `status` is 0, a positive NVMe status or a negative errno.
void SetNvmeResult(Command &command, int status);

//! One range of Dataset Management.
struct DatasetRange {
    uint32_t attributes;
    uint32_t lbas;
    uint64_t first_lba;
};
static_assert(sizeof(DatasetRange) == 16, "as the device reads it");

//! The most ranges that one Dataset Management has.
constexpr size_t DATASET_RANGES_MAX = 256;
//! Deallocates `count` ranges. `buffer` becomes the command's, and must live as long:
//! room for all the ranges that such a command can have, zeroed behind these, in one
//! page. Some controllers fetch all of it whatever number the command names, as the
//! kernel knows too (nvme_setup_discard), and would read memory that nobody gave them.
nvme_passthru_cmd64 MakeDeallocate(const DatasetRange *ranges, size_t count, uint32_t namespace_id,
                                   AlignedBuffer &buffer);

class NvmeDevice : public Device {
  public:
    const Capabilities &Caps() const override { return caps_; }
    uint64_t CurrentCapacity() const override;
    std::unique_ptr<Queue> CreateSynchronousQueue() override;
    void Flush() override;
    bool Deallocate(uint64_t device_offset, uint64_t length) override;
    bool DeallocateRanges(const std::vector<DeviceRange> &ranges) override;

  protected:
    //! `target` is the node that takes the commands. Throws Error PERMISSION, UNSUPPORTED.
    NvmeDevice(const Target &target, const DeviceOptions &options);
    //! Of a namespace without a node: the engine calls Describe.
    explicit NvmeDevice(std::string name) : name_(std::move(name)) {}
    //! Fills in what follows but for the descriptor. `info.nvme` is there.
    void Describe(const TargetInfo &info, const DeviceOptions &options);

    //! Runs one command on the calling thread. 0, a positive NVMe status or a negative errno.
    virtual int Run(nvme_passthru_cmd64 command) const;

    std::string name_;
    std::optional<Target>
        node_; //!< that takes the commands; none when the process drives the controller itself
    FileDescriptor fd_;
    uint32_t namespace_id_ = 0;
    bool polling_queues_ = false; //!< the driver has some for this namespace
    Capabilities caps_; //!< all but engine, engine_reason and max_queue_depth, which the engine adds

  private:
    void Open(const Target &target, const DeviceOptions &options);
    void FindPlacements(const NvmeInfo &nvme);

    void ManageDataset(const DatasetRange *ranges, size_t count) const;

    uint64_t max_deallocate_bytes_ = 0; //!< of one range
    uint32_t max_deallocate_ranges_ = 1;
};

} // namespace rawduck
