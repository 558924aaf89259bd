//! For tests of who takes all of an address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <sys/mman.h>
#include <vector>

namespace rawduck {

//! Memory, and a decoy: memory at the address of which only the lower 32 bits are those of the first.
class MemoryWithDecoy {
  public:
    explicit MemoryWithDecoy(uint64_t length) : length_(length) {
        for (int attempt = 0; attempt < 64 && !decoy_; attempt++) {
            char *memory = Map(0);
            mapped_.push_back(memory);
            const uint64_t cut = reinterpret_cast<uint64_t>(memory) & UINT32_MAX;
            decoy_ = cut + length <= UINT32_MAX ? Map(cut) : nullptr;
        }
        mapped_.push_back(decoy_);
    }
    ~MemoryWithDecoy() {
        for (char *memory : mapped_) {
            munmap(memory, memory ? length_ : 0);
        }
    }
    char *Data() const { return mapped_.end()[-2]; }
    bool HasDecoy() const { return decoy_; }
    bool DecoyIsUntouched() const {
        return std::all_of(decoy_, decoy_ + length_, [](char byte) { return byte == 0; });
    }

  private:
    //! `address`: nothing else is there; 0: anywhere. Null where that cannot be.
    char *Map(uint64_t address) const {
        void *memory = mmap(reinterpret_cast<void *>(address), length_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED_NOREPLACE : 0), -1, 0);
        return memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
    }

    const uint64_t length_;
    std::vector<char *> mapped_;
    char *decoy_ = nullptr;
};

} // namespace rawduck
