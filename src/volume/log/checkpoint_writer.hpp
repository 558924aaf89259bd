//! Writes checkpoints of the metadata in the background, so that no commit waits for one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace rawduck {

//! Thread-safe.
class CheckpointWriter {
  public:
    //! `write` writes the checkpoint that is pending. Returns false to be called again soon. Does not throw.
    explicit CheckpointWriter(std::function<bool()> write);
    ~CheckpointWriter();

    //! A checkpoint is pending. Its thread is made now, if there is none yet; without a thread nothing is written here.
    void Wake() noexcept;
    //! Waits until nothing is being written. Nothing is written afterwards.
    void Stop();

  private:
    void Run();

    const std::function<bool()> write_;
    const uint64_t fork_generation_;
    std::mutex mutex_; //!< guards what follows; no other lock is taken under it
    std::condition_variable wake_;
    std::unique_ptr<std::thread> thread_;
    bool pending_ = false, stop_ = false;
};

} // namespace rawduck
