//! Reads the blocks of a scan ahead, in a thread of its own: from the file into pinned slots, from there to the device, while
//! what came before is decoded.
//!
//! The blocks come in windows: those that some consecutive row groups need. At most WINDOWS_AHEAD of them lie on the device
//! beside the one that is being decoded. A block that a window has in common with the one before it is not read again.
#pragma once

#include "gpu/device/device.hpp"
#include "gpu/pipeline/block_source.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace rawduck::gpu {

//! A window's blocks on the device, on their way there until the device has waited for `copied`.
struct BlockWindow {
    Memory memory; //!< COPIED
    std::map<uint64_t, uint8_t *> places;
    std::vector<uint64_t> kept; //!< those of the window before: their places are empty so far
    uint64_t bytes_read = 0;
    std::shared_ptr<Event> copied; //!< null: nothing was read
};

//! Next is called by one thread at a time.
class BlockReader {
  public:
    //! `windows`: what each of them needs. `source` has to outlive the reader.
    BlockReader(std::vector<std::set<uint64_t>> windows, BlockSource &source, std::shared_ptr<Device> device);
    //! Waits for the read that is going on.
    ~BlockReader();

    //! The next window; waits for it. Throws what reading it has thrown.
    BlockWindow Next();

    static constexpr size_t WINDOWS_AHEAD = 2;

  private:
    void Run();
    bool IsRoom() const { return is_stopped_ || ready_.size() < WINDOWS_AHEAD; }
    BlockWindow Read(size_t index);
    //! Reads `wanted` slot by slot.
    void Fill(const std::vector<uint64_t> &wanted, BlockWindow &window);
    size_t FillSlot(const std::vector<uint64_t> &wanted, size_t first, uint8_t *device_to,
                    BlockWindow &window);

    const std::vector<std::set<uint64_t>> windows_;
    BlockSource &source_;
    const std::shared_ptr<Device> device_;
    std::thread thread_;

    std::mutex mutex_; //!< of what follows
    std::condition_variable changed_;
    std::deque<BlockWindow> ready_;
    size_t taken_ = 0;
    std::exception_ptr failure_;
    bool is_stopped_ = false;
};

} // namespace rawduck::gpu
