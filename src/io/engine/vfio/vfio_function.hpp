//! A PCI function that the kernel's vfio-pci hands to this process: group and container of VFIO's first
//! interface. Its descriptors are closed in a forked child, which would keep the device otherwise.
#pragma once

#include "io/engine/vfio/pci_function.hpp"
#include "target/system/file_descriptor.hpp"

#include <functional>

struct vfio_info_cap_header;

namespace rawduck {

class VfioFunction final : public PciFunction {
  public:
    //! `address` as in "0000:01:00.0". Throws Error, with `name` for the target: NOT_FOUND, UNSUPPORTED (no
    //! IOMMU, the group is not ours alone), PERMISSION, LOCKED (another process has it), IO.
    VfioFunction(const std::string &address, const std::string &name);
    ~VfioFunction() override;
    VfioFunction(const VfioFunction &) = delete;
    VfioFunction &operator=(const VfioFunction &) = delete;

    const std::string &Address() const override { return address_; }
    std::optional<uint32_t> Read32(uint32_t offset) override;
    bool Write32(uint32_t offset, uint32_t value) override;
    void RingDoorbell(uint32_t offset, uint32_t value) override;
    std::vector<IovaRange> IovaRanges() override;
    int MapMemory(void *memory, uint64_t bytes, uint64_t iova) override;
    void UnmapMemory(uint64_t iova, uint64_t bytes) override;
    uint64_t MappingsLeft() override;
    bool Reset() override;
    void StopDma() override;
    std::vector<int> EnableInterrupts(uint32_t count) override;
    uint32_t InterruptsMax() override;
    int RemovalDescriptor() override { return removal_.Get(); }
    void Close() override;

  private:
    //! Closed in a forked child, and whenever this is let go of.
    class OwnDescriptor {
      public:
        OwnDescriptor() = default;
        explicit OwnDescriptor(int fd);
        ~OwnDescriptor() { Close(); }
        OwnDescriptor(const OwnDescriptor &) = delete;
        OwnDescriptor &operator=(OwnDescriptor &&other) noexcept;
        int Get() const { return fd_; }
        void Close();

      private:
        int fd_ = -1;
    };

    void OpenContainer();
    void OpenGroup();
    void OpenDevice();
    void MapRegisters();
    bool SetBusMaster(bool on);
    void AskForRemoval();
    bool SetInterrupts(uint32_t index, const std::vector<int> &descriptors);
    void ForEachCapability(const std::function<void(const vfio_info_cap_header &)> &look) const;

    const std::string address_, name_;
    OwnDescriptor container_, group_, device_;
    uint64_t config_offset_ = 0, registers_offset_ = 0, registers_bytes_ = 0;
    volatile char *registers_ = nullptr;
    std::vector<FileDescriptor> interrupts_;
    FileDescriptor removal_;
};

} // namespace rawduck
