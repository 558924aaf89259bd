//! Memory of the device that is not there: pages of this process that can be touched only while the device works, and
//! only between their allocation and their release in the order of streams. Used under the checker's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace rawduck::gpu::checker {

struct Allocation {
    uint8_t *data;
    size_t bytes;
    size_t mapped;            //!< whole pages, with one behind that nobody may touch
    void *stream = nullptr;   //!< that of the allocation
    bool is_usable = false;   //!< its allocation has been reached, its release has not
    bool is_released = false; //!< the call that frees it was made
};

class DeviceMemory {
  public:
    //! Reserves the place. Usable from `Begin` on.
    std::shared_ptr<Allocation> Reserve(size_t bytes);
    void Begin(Allocation &allocation);
    //! The call, not yet its effect.
    std::shared_ptr<Allocation> MarkReleased(const uint8_t *data);
    void End(Allocation &allocation);
    //! The device starts or stops working: what is usable can be touched meanwhile.
    void Open();
    void Close();
    bool IsOpen() const { return is_open_; }
    //! Ends the process where the range is not in one usable allocation.
    void RequireUsable(const void *data, size_t bytes, const std::string &what) const;
    //! Whether it lies in an allocation, usable or not.
    bool IsReserved(const void *data) const;
    size_t Count() const { return live_.size(); }
    //! What lies there, for messages.
    std::string Describe(const void *address) const;

  private:
    void Protect(const Allocation &allocation, bool is_allowed) const;

    std::map<const uint8_t *, std::shared_ptr<Allocation>> live_;
    std::map<const uint8_t *, size_t> past_; //!< never mapped again
    bool is_open_ = false;
};

//! Pinned host memory.
class PinnedMemory {
  public:
    void *Allocate(size_t bytes);
    void Free(void *data);
    //! Memory of the application, from now on and until it is removed.
    void Add(void *data, size_t bytes);
    void Remove(void *data);
    void RequireInside(const void *data, size_t bytes, const std::string &what) const;
    size_t Bytes() const { return bytes_; }

  private:
    //! Returns its size.
    size_t Forget(void *data, const char *call);

    std::map<const uint8_t *, size_t> live_;
    size_t bytes_ = 0;
};

} // namespace rawduck::gpu::checker
