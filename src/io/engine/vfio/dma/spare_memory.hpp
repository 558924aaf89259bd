//! Memory that is locked for devices only to spare copies: how much of it there may be.
#pragma once

#include <atomic>
#include <cstdint>

namespace rawduck {

//! Of all controllers of a process together: the system counts what a process has locked, not for whom, and copies
//! need some of it for each of them. Thread-safe.
class SpareMemory {
  public:
    //! False, and nothing taken, when it would be more than `bytes_max` in all.
    bool Take(uint64_t bytes, uint64_t bytes_max);
    void Give(uint64_t bytes) { taken_ -= bytes; }

  private:
    std::atomic<uint64_t> taken_{0};
};

//! Half of what this process may lock; UINT64_MAX: there is no limit. 0 when the rest would not suffice.
uint64_t SpareBytesMax();

} // namespace rawduck
