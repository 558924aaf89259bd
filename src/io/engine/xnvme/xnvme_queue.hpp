//! A queue of libxnvme as a queue of ours.
#pragma once

#include "io/device/device.hpp"
#include "io/engine/ring/ring_entries.hpp"
#include "io/engine/xnvme/xnvme_module.hpp"

#include <optional>
#include <string>
#include <vector>

namespace rawduck {

//! An opened device of libxnvme, and how commands are put to it.
struct XnvmeConnection {
    XnvmeConnection(const XnvmeModule &module, const XnvmeOpenOptions &options);
    XnvmeConnection(const XnvmeModule &module, const XnvmeControllerOptions &options);
    ~XnvmeConnection();
    XnvmeConnection(const XnvmeConnection &) = delete;
    XnvmeConnection &operator=(const XnvmeConnection &) = delete;

    nvme_passthru_cmd64 MakeTransfer(const Command &command) const;
    //! Runs a transfer on the calling thread, and sets its result.
    void Run(Command &command) const;
    //! Of an NVMe command: `status` is 0, a positive NVMe status or a negative errno.
    void SetResult(Command &command, int status) const;
    //! See Command::cause.
    const char *CauseOf(int status) const;

    const XnvmeModule &module;
    XnvmeDeviceHandle *device = nullptr; //!< nullptr: it could not be opened
    int error = 0;                       //!< then a negative errno, see XnvmeModule::open
    const bool byte_offsets;
    const bool drives_controller = false;    //!< through a backend of libxnvme, without the kernel
    uint32_t namespace_id = 0, lba_size = 0; //!< of NVMe commands
};

//! Commands go to the device when Reap is called. libxnvme offers nothing to sleep on, so waiting is polling:
//! a few times in a row, then with pauses.
class XnvmeQueue final : public Queue {
  public:
    //! Throws Error IO.
    XnvmeQueue(const XnvmeConnection &connection, const std::string &target_name, uint32_t depth);
    ~XnvmeQueue() override;
    bool Submit(Command &command) override;
    uint32_t Reap(Command **completed, uint32_t max, bool wait) override;
    uint32_t Depth() const override { return depth_; }

  private:
    uint32_t Poke(Command **completed, uint32_t max);

    const XnvmeConnection &connection_;
    const std::string target_name_;
    const uint32_t depth_;
    std::optional<RingEntries> entries_; //!< of libxnvme's ring, where it is one for NVMe commands
    XnvmeQueueHandle *queue_ = nullptr;
    uint32_t in_flight_ = 0;
    std::vector<Command *> refused_; //!< by libxnvme, to be handed out as failed
    std::vector<XnvmeCompletion> completions_;
};

} // namespace rawduck
