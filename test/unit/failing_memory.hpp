//! Memory that runs out when a test says so.
#pragma once

#include <cstdint>

namespace rawduck {

//! While it lives, one allocation of the thread that made it throws std::bad_alloc: the one after `before`
//! others.
class FailingMemory {
  public:
    explicit FailingMemory(int64_t before);
    ~FailingMemory();
    FailingMemory(const FailingMemory &) = delete;
    FailingMemory &operator=(const FailingMemory &) = delete;
    bool HasFailed() const;
};

} // namespace rawduck
