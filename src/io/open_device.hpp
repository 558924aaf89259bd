//! Which engine opens which target.
#pragma once

#include "common/error.hpp"
#include "io/device/device.hpp"
#include "io/device/device_options.hpp"
#include "io/stripe/striped_device.hpp"
#include "target/target.hpp"

#include <memory>
#include <string>
#include <vector>

namespace rawduck {

//! The engines a user can ask for, best first, but for
//! those of the optional xNVMe (io/engine/xnvme/xnvme.hpp).
const std::vector<std::string> &EngineNames();
//! Throws Error INVALID, listing what there is, unless it
//! is "auto", one of EngineNames or an interface of xNVMe.
void RequireKnownEngine(const std::string &engine, const std::string &subject);

//! Opens every member of a stripe through an engine, as OpenDevice. Throws as that and StripedDevice.
std::unique_ptr<StripedDevice> OpenStripe(const Target &target, const DeviceOptions &options,
                                          StripedDevice::Headers headers);

//! That a target which was not read when it was looked up (Target::headers_unread) is a member of a stripe.
class MemberFound final : public Error {
  public:
    explicit MemberFound(const std::string &message) : Error(ErrorCode::LOCKED, message) {}
};

//! Opens a target through an engine. Throws MemberFound, or Error: PERMISSION, NOT_FOUND, UNSUPPORTED (engine not available
//! on this kernel or target, with what to do), IO. Direct I/O where the target allows it; never silently
//! buffered: a file system without O_DIRECT is an UNSUPPORTED error that says so.
std::unique_ptr<Device> OpenDevice(const Target &target, const DeviceOptions &options);

} // namespace rawduck
