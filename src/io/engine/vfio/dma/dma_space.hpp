//! The memory that a device reaches, and where it sees it.
#pragma once

#include "common/memory/stable_memory.hpp"
#include "io/engine/vfio/dma/dma_window.hpp"
#include "io/engine/vfio/dma/iova_space.hpp"

#include <map>
#include <memory>
#include <shared_mutex>

namespace rawduck {

//! Thread-safe.
class DmaSpace final : private StableMemory::Watcher {
  public:
    explicit DmaSpace(PciFunction &function);
    ~DmaSpace() override;
    DmaSpace(const DmaSpace &) = delete;
    DmaSpace &operator=(const DmaSpace &) = delete;

    //! Both multiples of PAGE_BYTES. What PciFunction::MapMemory asks of the caller holds until Unregister. 0 or
    //! an errno.
    int Register(void *memory, uint64_t bytes);
    //! What was registered, whole. No command may be in flight to it.
    void Unregister(void *memory);
    //! Lets Reach register blocks of this range, which is BufferMemory's, as they are used: of `spare`, which is
    //! used until this is destroyed, as long as it has less than `spare_bytes_max` taken, and with so few mappings that
    //! some are left for copies. They are forgotten before their pages are given back. False when the device has no
    //! addresses for it. Once.
    bool OpenWindow(char *begin, uint64_t bytes, SpareMemory &spare, uint64_t spare_bytes_max);
    //! Where the device sees these bytes, all within one registration or in the window; nothing when they are in
    //! neither. Of an abandoned one: where it would.
    std::optional<uint64_t> Find(const void *memory, uint64_t bytes) const;
    //! The same, for several at a time: nothing is registered or forgotten while it exists.
    class Lookup {
      public:
        explicit Lookup(const DmaSpace &space) : space_(space), lock_(space.mutex_) {}
        std::optional<uint64_t> Find(const void *memory, uint64_t bytes) const {
            return space_.FindLocked(memory, bytes);
        }

      private:
        const DmaSpace &space_;
        std::shared_lock<std::shared_mutex> lock_;
    };
    //! As Find, once they are registered if they lie in the window. They must be in use until their command is
    //! complete.
    std::optional<uint64_t> Reach(const void *memory, uint64_t bytes);
    //! Takes the bus and all memory from the function (PciFunction::StopDma): from now on it reaches nothing, and is
    //! asked for nothing. Memory can still be registered, for commands that will not be sent.
    void Abandon();
    //! Of the window.
    uint64_t WindowBytes() const;

  private:
    struct Mapping {
        uint64_t bytes, iova;
    };

    std::optional<uint64_t> FindLocked(const void *memory, uint64_t bytes) const;
    void PagesGo(char *begin, uint64_t bytes, uint64_t number,
                 StableMemory::Afterwards &afterwards) noexcept override;

    PciFunction &function_;
    mutable std::shared_mutex mutex_; //!< guards what follows; no other lock is taken under it
    IovaSpace space_;
    std::map<uintptr_t, Mapping> mappings_;
    std::unique_ptr<DmaWindow> window_; //!< null: there is none
    bool abandoned_ = false;
};

//! What one errno of Register means, and what to do: a clause.
std::string DmaErrorText(int error_number);

//! Zeroed memory that a device reaches while this object lives. A forked child does not have it.
class DmaMemory {
  public:
    //! Throws Error PERMISSION when no more memory may be locked, IO, std::bad_alloc. `name` is what messages
    //! call the device.
    DmaMemory(DmaSpace &space, uint64_t bytes, const std::string &name);
    ~DmaMemory();
    DmaMemory(const DmaMemory &) = delete;
    DmaMemory &operator=(const DmaMemory &) = delete;

    char *Data() const { return data_; }
    uint64_t Iova() const { return iova_; }
    uint64_t Size() const { return bytes_; }

  private:
    DmaSpace &space_;
    const uint64_t bytes_;
    char *data_ = nullptr;
    uint64_t iova_ = 0;
};

} // namespace rawduck
