//! Decodes the windows of a scan ahead, in a thread of its own, while batches are put together from those before, and the
//! blocks of those behind are read.
#pragma once

#include "gpu/pipeline/block_reader.hpp"
#include "gpu/pipeline/decode_rows.hpp"

#include <chrono>

namespace rawduck::gpu {

struct DecodedWindow {
    std::deque<std::vector<ColumnRows>> groups; //!< the columns of each row group
    DecodeCounters counters;
};

//! Add is called by one thread at a time, and so is Next.
class WindowDecoder {
  public:
    //! `source` has to outlive it.
    WindowDecoder(BlockSource &source, std::shared_ptr<Device> device);
    //! Waits for the read and the window that are going on.
    ~WindowDecoder();

    //! Row groups that are decoded together, and the blocks that they need. Begins with them where there is room. `bytes`:
    //! that they may have when they are decoded.
    void Add(std::vector<RowGroupJob> groups, std::set<uint64_t> blocks, uint64_t bytes);
    //! The next window, which has been added; waits for it, but not longer than that. Throws what reading or decoding it
    //! has thrown.
    std::optional<DecodedWindow> Next(std::chrono::milliseconds patience);

    static constexpr uint64_t WINDOW_BYTES_MOST = 256 << 20; //!< but for a row group that has more
    static constexpr size_t WINDOWS_AHEAD = 3;               //!< fewer where such ones are among them

  private:
    struct Window {
        std::vector<RowGroupJob> groups;
        uint64_t bytes;
    };

    void Run();
    //! A window after the other: what the device is told for the next one it is told before the last one is waited for.
    void DecodeAll();
    //! Waits until there is a window to begin with, or until it is of no use to wait any longer: nothing, then.
    std::optional<Window> AwaitWindow();
    //! Whether there is a window to begin with, and room for it.
    bool IsWanted() const;
    void Begin(Window window);
    //! The window before the last one that was begun, or all of them.
    void Finish();

    const uint64_t block_bytes_;
    const std::shared_ptr<Device> device_;
    BlockReader reader_;
    std::thread thread_;
    // Of that thread: the blocks of the last window that was begun, and what is not finished.
    std::shared_ptr<const BlocksOnDevice> blocks_;
    std::deque<std::unique_ptr<RowsInTheMaking>> begun_;

    std::mutex mutex_; //!< of what follows
    std::condition_variable changed_;
    std::deque<Window> wanted_;
    std::deque<uint64_t> begun_bytes_; //!< that each of `begun_` may have
    std::deque<DecodedWindow> ready_;
    std::exception_ptr failure_;
    bool is_stopped_ = false;
};

} // namespace rawduck::gpu
