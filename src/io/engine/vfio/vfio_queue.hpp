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
    std::vector<Command *> waiting_; //!< not in the lane yet, oldest first
    std::vector<Command *> done_;    //!< complete and not reaped; guarded by the lane's mutex
    uint32_t in_lane_ = 0;           //!< guarded by it, too
};

} // namespace rawduck
