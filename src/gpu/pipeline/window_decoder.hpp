//! Decodes the windows of a scan ahead, in a thread of its own, while batches are put together from those before, and the
//! blocks of those behind are read.
#pragma once

#include "gpu/pipeline/block_reader.hpp"
#include "gpu/pipeline/decode_rows.hpp"

namespace rawduck::gpu {

struct DecodedWindow {
    std::vector<std::vector<ColumnRows>> groups; //!< the columns of each row group
    DecodeCounters counters;
};

//! Add is called by one thread at a time, and so is Next.
class WindowDecoder {
  public:
    //! `source` has to outlive it.
    WindowDecoder(BlockSource &source, std::shared_ptr<Device> device);
    //! Waits for the read and the window that are going on.
    ~WindowDecoder();

    //! Row groups that are decoded together, and the blocks that they need. Begins with them where there is room.
    void Add(std::vector<RowGroupJob> groups, std::set<uint64_t> blocks);
    //! The next window, which has been added; waits for it. Throws what reading or decoding it has thrown.
    DecodedWindow Next();

    static constexpr size_t WINDOWS_AHEAD = 3;

  private:
    void Run();
    //! A window after the other: what the device is told for the next one it is told before the last one is waited for.
    void DecodeAll();
    //! Waits until there is a window to begin with, or until it is of no use to wait any longer: nothing, then.
    std::optional<std::vector<RowGroupJob>> AwaitWindow();
    void Begin(std::vector<RowGroupJob> groups);
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
    std::deque<std::vector<RowGroupJob>> wanted_;
    std::deque<DecodedWindow> ready_;
    std::exception_ptr failure_;
    bool is_stopped_ = false;
};

} // namespace rawduck::gpu
