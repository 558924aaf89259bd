//! Which threads may still hold what they have read from a file, so that its closing can wait for them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace rawduck {

//! DuckDB 2.0.0 counts a block that was read ahead as done before the thread that read it has let go of it
//! (ReadAheadIOTask: TaskExecutorTask::Execute counts it, TaskScheduler destroys it afterwards, and with it
//! the handles of its blocks). A database that is closed in that moment is gone when they are, and the
//! process dies (stock DuckDB too, with storage_block_prefetch = 'ALWAYS_PREFETCH'). The file is closed
//! before DuckDB frees what the thread still needs, so the closing waits for each thread that has read from
//! it, until one of these is seen:
//!
//! - It has read again since, from any file of ours. A task reads once, so that was another task.
//! - It sleeps, twice: once it may wait for a lock amid the task.
//! - It has run for long since the read, for what it read. The task has but to copy that into blocks, and for
//!   each of them may evict, that is compress and spill, another.
//!
//! Thread-safe.
class ReaderThreads {
  public:
    //! The calling thread has read, or tried to.
    void Add(uint64_t bytes);
    //! The calling thread has read from a file that nobody waits for.
    static void AddOtherFile();
    //! Returns when every other thread that has read was seen to have let go, or after `limit`.
    void WaitUntilReleased(std::chrono::milliseconds limit) const;

  private:
    struct Reader {
        int32_t thread;
        int64_t done_cpu_ns; //!< the task is over when the thread has used that much
        int sleeps = 0;
    };
    bool HasReleased(Reader &reader) const;

    static uint32_t NextNumber();

    const uint32_t number_ = NextNumber(); //!< of the file
    mutable std::mutex mutex_;
    std::vector<Reader> readers_; //!< few: one for each of DuckDB's threads
};

} // namespace rawduck
