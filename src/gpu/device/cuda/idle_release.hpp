//! Lets things go once a GPU is idle, in a thread of its own.
#pragma once

#include "gpu/device/cuda/gpu.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace rawduck::gpu::cuda {

//! One for the process. Its thread is made when it is first needed, and stays. Thread-safe, but not in a child made by
//! fork(), which does not have that thread.
class IdleRelease {
  public:
    static IdleRelease &OfProcess();

    //! Lets go of `kept` when the GPU has done everything that anybody had told it before. Where there is no memory or no
    //! thread for that, throws and leaves it as it is.
    void Add(const std::shared_ptr<Gpu> &gpu, std::shared_ptr<void> &kept);
    //! Returns when everything is gone that was added before.
    void Wait();

  private:
    struct Waiting {
        std::shared_ptr<Gpu> gpu;
        std::shared_ptr<void> kept;
    };

    [[noreturn]] void Run();

    std::mutex mutex_; //!< of what follows
    std::condition_variable changed_;
    std::vector<Waiting> waiting_;
    uint64_t added_ = 0, gone_ = 0; //!< since the process began
    bool is_running_ = false;
};

} // namespace rawduck::gpu::cuda
