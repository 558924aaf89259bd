//! A queue of the vfio engine: commands on a lane that other queues may use, too.
#pragma once

#include "io/device/device.hpp"
#include "io/engine/vfio/controller/controller.hpp"

namespace rawduck {

//! Used by one thread at a time, as every Queue.
class VfioQueue final : public Queue, private CommandSink {
  public:
    //! Throws Error IO.
    VfioQueue(Controller &controller, uint32_t namespace_id, uint32_t lba_size, uint32_t depth, bool polls);
    ~VfioQueue() override;
    VfioQueue(const VfioQueue &) = delete;
    VfioQueue &operator=(const VfioQueue &) = delete;

    bool Submit(Command &command) override;
    uint32_t Reap(Command **completed, uint32_t max, bool wait) override;
    uint32_t Depth() const override { return depth_; }
    bool Reaches(const void *memory, uint64_t bytes) const override;

  private:
    void Complete(void *command, uint16_t status, uint64_t result, const char *cause) noexcept override;
    void Send();

    Controller &controller_;
    const uint32_t namespace_id_, lba_size_, depth_;
    QueueLane &lane_;
    uint32_t taken_ = 0;             //!< submitted and not reaped
    std::vector<Command *> waiting_; //!< of those, not in the lane yet, oldest first
    std::vector<Command *> done_;    //!< of those, complete; guarded by the lane's mutex
};

} // namespace rawduck
