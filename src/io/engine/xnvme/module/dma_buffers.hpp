//! Memory of a backend that drives a controller: all that the controller can reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <libxnvme.h>
#include <linux/nvme_ioctl.h>
#include <mutex>
#include <vector>

namespace rawduck {

//! libxnvme's table of controllers and its memory have no locks of their own.
std::mutex &LibraryMutex();

//! A command's data, copied to where the controller reaches it.
struct Bounce {
    //! Copies what the controller reads, and makes `command` transfer to and from `buffer`.
    Bounce(void *to, nvme_passthru_cmd64 &command);
    Bounce() = default;
    //! Copies what the controller has written.
    void CopyBack() const;

    void *buffer = nullptr; //!< null: the command has no data
    void *data = nullptr;   //!< of the caller
    size_t bytes = 0;
    bool from_controller = false;
};

//! Buffers for one command each, all of one size. Thread-safe.
class DmaBuffers {
  public:
    //! `limit`: bytes that Take hands out within it.
    DmaBuffers(xnvme_dev *device, uint64_t limit) : device_(device), limit_(limit) {}
    ~DmaBuffers();
    DmaBuffers(const DmaBuffers &) = delete;
    DmaBuffers &operator=(const DmaBuffers &) = delete;

    size_t Bytes() const { return bytes_; }
    //! With no buffer taken.
    void SetBytes(size_t bytes);
    //! Null when there may be no more, or the backend is out of memory.
    void *Take(bool within_limit);
    void Give(void *buffer, bool within_limit);

  private:
    void *Allocate();
    void FreeIdle();

    xnvme_dev *const device_;
    const uint64_t limit_;
    size_t bytes_ = 0;
    std::mutex mutex_;   //!< guards what follows; LibraryMutex is taken under it
    uint64_t taken_ = 0; //!< bytes within the limit
    size_t made_ = 0;    //!< buffers, idle or not
    std::vector<void *> idle_;
};

} // namespace rawduck
