//! Deallocates freed space on the device: in batches, on a thread of its own, off the path of commits.
//!
//! Invariants:
//!  - A range comes here only once the record that freed it is durable.
//!  - A range is claimed while it is deallocated: it cannot be allocated meanwhile, and what has been
//!    allocated again before is left out.
//!  - When Drain returns nothing is under way, so that the volume's lock can be given up.
//! A device that fails a deallocation keeps what it has, so nothing is lost; it is not asked again, State
//! says so, and the errors are counted (nvme_stats).
#pragma once

#include "volume/log/metadata_log.hpp"
#include "volume/space/deallocate_mode.hpp"
#include "volume/space/space.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rawduck {

//! Thread-safe.
class Deallocator {
  public:
    //! `obstacle`: why nothing is to be deallocated, a clause; empty when it is. `delay`: how long freed
    //! space is collected before the device is told.
    Deallocator(BlockIo &io, Space &space, MetadataLog &log, std::string obstacle,
                std::chrono::milliseconds delay);
    ~Deallocator();
    //! Ends the thread. What is still pending is forgotten, and nothing may be added any more.
    void Stop();

    //! Queues freed space. Never blocks on the device and never throws: without memory or threads for it, the
    //! space is not deallocated.
    void Add(const std::vector<Extent> &freed);
    //! Deallocates everything queued before.
    void Drain();
    //! Nothing is queued, and the device is not being told of anything.
    bool Idle() const;
    //! Deallocates all free space, except pieces that are too small for the device. Returns bytes. Throws
    //! Error UNSUPPORTED where nothing is deallocated, or IO where that failed.
    uint64_t Trim(uint64_t total_units);
    //! Tells the device at once of ranges that belong to the caller. False when it was not told, or failed.
    bool Deallocate(const std::vector<DeviceRange> &ranges);

    //! "on", or "off: " and why.
    std::string State() const;

  private:
    void Run();
    void SendPending();
    //! Under sending_mutex_, as is SendClaimed. Both return the bytes that were deallocated.
    uint64_t Send(const std::vector<Extent> &freed);
    uint64_t SendClaimed(const std::vector<Extent> &claimed);
    bool Enabled() const;

    BlockIo &io_;
    Space &space_;
    MetadataLog &log_;
    const std::chrono::milliseconds delay_;
    const uint64_t fork_generation_;

    //! One batch at a time; held during I/O. mutex_ and the locks of space and log are taken under it.
    std::mutex sending_mutex_;
    mutable std::mutex mutex_; //!< guards what follows; no other lock is taken under it
    std::condition_variable wake_;
    std::string obstacle_;
    std::vector<Extent> pending_;
    bool stop_ = false, sending_ = false;
    std::unique_ptr<std::thread> thread_; //!< made when there is something to do
};

} // namespace rawduck
