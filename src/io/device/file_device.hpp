//! What the posix, io_uring and xNVMe engines share: a file or block device opened for direct I/O.
#pragma once

#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "target/inspect.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/target.hpp"

namespace rawduck {

class FileDevice : public Device {
  public:
    const Capabilities &Caps() const override { return caps_; }
    uint64_t CurrentCapacity() const override;
    void Flush() override;
    bool Deallocate(uint64_t device_offset, uint64_t length) override;

  protected:
    FileDevice(const Target &target, const DeviceOptions &options);

    std::string name_;
    const TargetKind kind_;
    std::shared_ptr<const TargetInfo> disk_; //!< of a regular file: kept as long as that is open
    FileDescriptor fd_;
    Capabilities caps_; //!< all but engine, engine_reason and max_queue_depth, which the engine adds

  private:
    //! Makes completed writes durable. 0 or an errno.
    virtual int SyncData();
    void Open(const Target &target, const DeviceOptions &options);
};

} // namespace rawduck
