//! A queue pair that threads share, with the waiting for its completions. A device has few pairs, DuckDB many
//! threads: whoever looks for completions hands each to the sink of its command.
#pragma once

#include "io/engine/vfio/queue/queue_pair.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>

namespace rawduck {

//! Everything but the mutex is guarded by it.
class QueueLane {
  public:
    //! How long Wait waits at most, so that somebody looks after the controller's health.
    static constexpr int SLICE_MS = 100;

    //! `polls`: waiting threads look again and again, without a pause.
    QueueLane(std::unique_ptr<QueuePair> pair, bool polls) : pair_(std::move(pair)), polls_(polls) {}

    //! Taken behind the controller's mutex, and behind those of lanes that were made earlier.
    std::mutex &Mutex() { return mutex_; }
    QueuePair &Pair() { return *pair_; }
    const QueuePair &Pair() const { return *pair_; }
    bool Polls() const { return polls_; }
    int Interrupt() const { return interrupt_; }
    //! A descriptor that becomes readable with completions, borrowed; -1: there is none, and waiting threads look
    //! again and again. To be called again when the controller was reset: it may have fewer than before.
    void SetInterrupt(int interrupt);

    //! Hands out what is complete. True when that was anything.
    bool Deliver();
    //! Waits for completions, with the lock released: one thread for the controller, the others for that one.
    //! False when nothing came for a slice of time. What came is not handed out yet.
    bool Wait(std::unique_lock<std::mutex> &lock);
    //! Wakes all that wait.
    void WakeAll();

    //! Empty as long as commands may be submitted; otherwise why the controller takes none any more.
    const std::string &Dead() const { return dead_; }
    void Die(const std::string &cause) { dead_ = cause; }
    //! The controller has completed what it was not given.
    bool Violated() const { return violated_; }
    void ForgetViolation() { violated_ = false; }

    uint64_t checked_ns = 0; //!< when somebody looked after the controller last
    uint32_t users = 0;      //!< queues on this lane; guarded by the controller's mutex instead

  private:
    bool WaitForController(std::unique_lock<std::mutex> &lock);

    std::mutex mutex_;
    const std::unique_ptr<QueuePair> pair_;
    int interrupt_ = -1;
    const bool polls_;
    std::condition_variable delivered_;
    bool led_ = false;        //!< a thread waits for the controller
    uint32_t followers_ = 0;  //!< threads that wait for that one
    uint64_t deliveries_ = 0; //!< how often something was handed out
    bool woken_ = false;      //!< the thread that waits for the controller shall return
    bool violated_ = false;
    std::string dead_;
};

} // namespace rawduck
