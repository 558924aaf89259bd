//! Reads the blocks of a scan ahead, in a thread of its own: from the file into pinned slots, from there to the device, while
//! what came before is decoded.
//!
//! Blocks of a volume in memory are not read: the device copies them from where they lie.
//!
//! The blocks come in windows: those that some consecutive row groups need. Windows are read ahead until they have
//! BYTES_AHEAD, but for one that is larger by itself. A block that a window has in common with the one before it is not read again.
#pragma once

#include "gpu/device/device.hpp"
#include "gpu/pipeline/block_source.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
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

//! Add is called by one thread at a time, and so is Next.
class BlockReader {
  public:
    //! `source` has to outlive the reader.
    BlockReader(BlockSource &source, std::shared_ptr<Device> device);
    //! Waits for the read that is going on.
    ~BlockReader();

    //! Another window, which needs these blocks: begins to read it where there is room.
    void Add(std::set<uint64_t> window);
    //! The next window, which has been added; waits for it. Throws what reading it has thrown.
    BlockWindow Next();

    //! Whether Next would not wait.
    bool IsReady();

    static constexpr uint64_t BYTES_AHEAD = 256 << 20;
    //! For how many windows memory is held at a time: then whoever waits to move or truncate the file has a turn.
    static constexpr size_t WINDOWS_HELD = 16;

  private:
    void Run();
    //! The next window that is wanted, when there is room for it; nothing: the reader is to end.
    std::optional<std::set<uint64_t>> AwaitWindow();
    bool CanGoOn() const {
        return is_stopped_ || (!wanted_.empty() && (ready_.empty() || ready_bytes_ < BYTES_AHEAD));
    }
    BlockWindow Read(const std::set<uint64_t> &wanted);
    //! `count` of them, from the `first` on, that go one behind the other to `to`.
    std::vector<BlockRange> RangesOf(const std::vector<uint64_t> &blocks, size_t first, size_t count,
                                     uint8_t *to) const;
    //! Has `wanted` copied from where it lies; false where it has to be read.
    bool CopyPinned(const std::vector<uint64_t> &wanted, BlockWindow &window);
    //! Keeps what is held for these copies, too.
    void Keep(std::shared_ptr<Event> copied);
    //! Waits until nothing is copied any more from memory that is held, and lets it go.
    void Release();
    //! Reads `wanted` slot by slot.
    void Fill(const std::vector<uint64_t> &wanted, BlockWindow &window);
    size_t FillSlot(const std::vector<uint64_t> &wanted, size_t first, uint8_t *device_to,
                    BlockWindow &window);

    BlockSource &source_;
    const std::shared_ptr<Device> device_;
    std::thread thread_;
    // Of that thread: what keeps the memory that the device copies from, and when it has done so.
    std::unique_ptr<StorageFile::Hold> hold_;
    std::deque<std::shared_ptr<Event>> copying_;
    size_t held_windows_ = 0;
    std::set<uint64_t> before_; //!< blocks of the window before

    std::mutex mutex_; //!< of what follows
    std::condition_variable changed_;
    std::deque<std::set<uint64_t>> wanted_;
    std::deque<BlockWindow> ready_;
    uint64_t ready_bytes_ = 0; //!< of their memory
    std::exception_ptr failure_;
    bool is_stopped_ = false;
};

} // namespace rawduck::gpu
