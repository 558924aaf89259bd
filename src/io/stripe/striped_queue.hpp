//! One queue of each member. Each command goes to the member that has its bytes.
#pragma once

#include "io/device/device.hpp"

namespace rawduck {

//! Which member runs a command. Thread-safe; lives longer than the queues.
class CommandRouter {
  public:
    //! Makes the command its member's, which is returned; and back, when it has completed.
    virtual size_t Translate(Command &command) const = 0;
    virtual void TranslateBack(Command &command, size_t member) = 0;

  protected:
    ~CommandRouter() = default;
};

class StripedQueue final : public Queue {
  public:
    //! `queues`: of the members, in their order. `depth`: of this one, at most that of all of them.
    StripedQueue(CommandRouter &router, std::vector<std::unique_ptr<Queue>> queues, uint32_t depth);
    bool Submit(Command &command) override;
    uint32_t Reap(Command **completed, uint32_t max, bool wait) override;
    uint32_t Depth() const override { return depth_; }
    bool Reaches(const void *memory, uint64_t bytes) const override;

  private:
    struct Lane {
        std::unique_ptr<Queue> queue;
        uint32_t in_flight = 0;
    };
    uint32_t ReapFrom(size_t member, Command **completed, uint32_t max, bool wait);

    CommandRouter &router_;
    std::vector<Lane> lanes_;
    const uint32_t depth_;
    uint32_t in_flight_ = 0;
    size_t next_ = 0; //!< the member that is asked first: none is always the last
};

} // namespace rawduck
