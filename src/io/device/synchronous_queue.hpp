//! A queue for engines whose commands run on the calling thread: Submit runs one, Reap hands it out.
#pragma once

#include "io/device/device.hpp"

#include <functional>
#include <vector>

namespace rawduck {

class SynchronousQueue final : public Queue {
  public:
    //! Returns what Command::result becomes.
    using Transfer = std::function<int64_t(Command &)>;

    SynchronousQueue(uint32_t depth, Transfer transfer);
    ~SynchronousQueue() override;
    bool Submit(Command &command) override;
    uint32_t Reap(Command **completed, uint32_t max, bool wait) override;
    uint32_t Depth() const override { return depth_; }

  private:
    uint32_t depth_;
    Transfer transfer_;
    std::vector<Command *> completed_; //!< oldest first
};

} // namespace rawduck
