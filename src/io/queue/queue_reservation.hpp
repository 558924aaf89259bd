//! How many scarce queues there may be, in one process and for one target.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace rawduck {

//! The right to one scarce queue, counted while this object exists.
class QueueReservation {
  public:
    //! Of one target, owned by a thread each.
    static constexpr int32_t OWNED_MAX = 128;
    //! Of one process, unless a quarter of the descriptors that it may open is less.
    static constexpr int32_t PROCESS_MAX = 512;

    //! What one process may have now.
    static int32_t ProcessMax();
    //! Null when there are as many already. `owned` counts those of the target that threads own and outlives
    //! the place; nullptr for a queue that threads share.
    static std::unique_ptr<QueueReservation> TryTake(std::atomic<int32_t> *owned);

    ~QueueReservation();
    QueueReservation(const QueueReservation &) = delete;
    QueueReservation &operator=(const QueueReservation &) = delete;

  private:
    explicit QueueReservation(std::atomic<int32_t> *owned) : owned_(owned) {}
    std::atomic<int32_t> *const owned_;
};

} // namespace rawduck
