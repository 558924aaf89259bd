//! Tracks the threads that may still hold blocks read from a file, so that closing the file can wait for
//! them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace rawduck {

//! DuckDB 2.0.0 marks a prefetched block complete while its reader still holds it (ReadAheadIOTask:
//! TaskExecutorTask::Execute marks it; TaskScheduler destroys the task afterwards, and with it the handles of
//! its blocks). If the database is closed at that moment, the handles outlive it and the process crashes
//! (stock DuckDB too, with storage_block_prefetch = 'ALWAYS_PREFETCH'). The file is closed before DuckDB
//! frees what the thread still needs, so closing waits for each thread that has read from the file, until one
//! of these is observed:
//!
//! - It has read again, from any of our files. A task reads once, so that was another task.
//! - It sleeps, twice: the first time it may be waiting for a lock within the task.
//! - It has used more processor time since the file is closed than the task can need. What is left of the task is to
//!   copy the data into blocks and, for each of them, to evict (compress and spill) another block.
//!
//! Thread-safe.
class ReaderThreads {
  public:
    //! Call before the calling thread reads so much. Throws std::bad_alloc, so that Add does not. Without a lock, and
    //! without asking the kernel, where the thread has read as much from this file last.
    void Expect(uint64_t bytes);
    //! Call when the calling thread has read, or tried to.
    void Add() noexcept;
    //! Call when the calling thread has read from a file whose closing does not wait.
    static void AddOtherFile();
    //! Returns when every other thread that has read was observed to have released its blocks, when `released` says
    //! so, which is asked again and again by the calling thread, or after `limit`.
    void WaitUntilReleased(
        std::chrono::milliseconds limit, const std::function<bool()> &released = [] { return false; }) const;

  private:
    struct Reader {
        int32_t thread;
        uint64_t bytes; //!< the most at once
    };
    struct Observed {
        int32_t thread;
        int64_t done_cpu_ns; //!< the task is over when the thread has used that much
        int sleeps = 0;
    };
    Reader &ReaderOf(int32_t thread); //!< mutex_ is held
    std::vector<Observed> Observe() const;
    bool HasReleased(Observed &reader) const;

    static uint32_t NextNumber();

    const uint32_t number_ = NextNumber(); //!< of the file
    mutable std::mutex mutex_;             //!< guards readers_
    std::vector<Reader> readers_;          //!< few: not many more than there are threads
};

} // namespace rawduck
