//! Memory of this process that something other than a processor reads where it lies: a GPU.
#pragma once

#include <cstdint>
#include <memory>

namespace rawduck {

//! Thread-safe.
class MemoryPinner {
  public:
    virtual ~MemoryPinner() = default;
    //! Pinners of one group read what any of them has pinned.
    virtual const void *Group() const = 0;
    //! Whole pages, which stay as they are until what is returned is destroyed. Null where that cannot be.
    virtual std::shared_ptr<void> Pin(void *memory, uint64_t bytes) = 0;
};

} // namespace rawduck
