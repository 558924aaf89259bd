//! Lets an allocation fail, in the thread that asks for it.
#pragma once

#include <cstdint>

namespace rawduck {

//! While it lives, the allocation behind so many others throws std::bad_alloc, and only that one.
class OutOfMemoryAfter {
  public:
    explicit OutOfMemoryAfter(int64_t allocations);
    ~OutOfMemoryAfter();
    OutOfMemoryAfter(const OutOfMemoryAfter &) = delete;
    OutOfMemoryAfter &operator=(const OutOfMemoryAfter &) = delete;
    //! Whether that allocation has been asked for.
    bool Failed() const;
};

//! Memory is there again while it lives: for what stands for a device.
class MemoryAgain {
  public:
    MemoryAgain();
    ~MemoryAgain();
    MemoryAgain(const MemoryAgain &) = delete;
    MemoryAgain &operator=(const MemoryAgain &) = delete;

  private:
    const int64_t allocations_left_;
};

} // namespace rawduck
