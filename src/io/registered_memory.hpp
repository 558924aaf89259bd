//! Memory from the system that commands transfer to and from in place, on devices where that has to be arranged.
#pragma once

#include "common/memory/stable_memory.hpp"
#include "io/block_io.hpp"

namespace rawduck {

//! Not thread-safe, but for what lies in it.
class RegisteredMemory {
  public:
    //! Of any device when `io` is null, which otherwise lives longer. Throws std::bad_alloc.
    RegisteredMemory(BlockIo *io, uint64_t bytes)
        : io_(io), memory_(bytes),
          registered_(io_ && io_->Register(memory_.Data(), AlignUp(bytes, PAGE_BYTES))) {}
    ~RegisteredMemory() {
        if (registered_) {
            io_->Forget(memory_.Data());
        }
    }
    RegisteredMemory(const RegisteredMemory &) = delete;
    RegisteredMemory &operator=(const RegisteredMemory &) = delete;

    //! As HugeMemory's.
    char *Data() const { return memory_.Data(); }

  private:
    BlockIo *const io_;
    const StableHugeMemory memory_;
    const bool registered_;
};

} // namespace rawduck
