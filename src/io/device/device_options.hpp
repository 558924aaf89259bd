//! How a device is opened.
#pragma once

#include "common/units.hpp"
#include "target/target.hpp"

#include <cstdint>
#include <string>

namespace rawduck {

class TargetLock; // target/lock/target_lock.hpp

//! The largest command that may be asked for, bytes; what a device takes may be less.
constexpr uint32_t MAX_COMMAND_BYTES = 64 * MIB;

struct DeviceOptions {
    //! "auto", one of EngineNames or "xnvme:<interface>"; targets in this process have their own.
    std::string engine = "auto";
    bool read_only = false;
    //! A direct:// file: it grows, so its capacity is not a limit of the device.
    bool growing_file = false;
    //! Command size limit asked for by the user, bytes; 0 keeps the default.
    uint32_t max_transfer_bytes = 0;
    //! Whether `auto` may take passthrough on a block device for the sake of placement.
    bool placement = true;
    //! Whether to poll where that is possible.
    bool polling = false;
    //! The lock on the target, which outlives the device: I/O goes through its descriptors, so that it lasts
    //! until the last request is done, whatever becomes of this process. Null: the device opens the target.
    const TargetLock *lock = nullptr;
};

} // namespace rawduck
