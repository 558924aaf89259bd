//! Which threads have read from a file, so that its closing can wait until they rest.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace rawduck {

//! DuckDB 2.0.0 counts a block that was read ahead as done before the thread that read it has let go of it. A
//! database that is closed in that moment is gone when it does, and the process dies (stock DuckDB too, with
//! storage_block_prefetch = 'ALWAYS_PREFETCH'). The file is closed before DuckDB frees what the thread still
//! needs, so the closing waits: a thread that sleeps, or reads something else, has let go. Thread-safe.
class ReaderThreads {
  public:
    //! The calling thread reads.
    void Add();
    //! Returns when every other thread that has read was seen to rest twice, or after `limit`.
    void WaitUntilTheyRest(std::chrono::milliseconds limit) const;

  private:
    mutable std::mutex mutex_;
    std::vector<int32_t> threads_; //!< few: one for each of DuckDB's threads
};

} // namespace rawduck
