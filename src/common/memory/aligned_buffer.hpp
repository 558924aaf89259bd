//! A byte buffer that starts at a multiple of 4096, so that a device can transfer to and from it directly.
#pragma once

#include <cstring>
#include <memory>
#include <new>

#include "common/units.hpp"

namespace rawduck {

//! Not thread-safe. Grows like a vector and keeps its contents.
class AlignedBuffer {
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(size_t size) { Resize(size); }

    char *Data() { return data_.get(); }
    const char *Data() const { return data_.get(); }
    size_t Size() const { return size_; }
    bool Empty() const { return size_ == 0; }

    //! New bytes are undefined.
    void Resize(size_t size) {
        if (size > capacity_) {
            Grow(size);
        }
        size_ = size;
    }
    void Append(const char *bytes, size_t length) {
        if (length == 0) {
            return;
        }
        if (length > BYTES_MAX) {
            throw std::bad_alloc();
        }
        const size_t old_size = size_;
        Resize(old_size + length);
        memcpy(data_.get() + old_size, bytes, length);
    }
    void AppendZeros(size_t length) {
        if (length == 0) {
            return;
        }
        const size_t old_size = size_;
        Resize(old_size + length);
        memset(data_.get() + old_size, 0, length);
    }
    //! Drops the first `length` bytes; the rest moves to the start.
    void DropFront(size_t length) {
        if (length > 0) {
            memmove(data_.get(), data_.get() + length, size_ - length);
            size_ -= length;
        }
    }
    //! Frees memory beyond `keep` bytes if the contents fit into `keep`.
    void Shrink(size_t keep) {
        if (capacity_ > keep && size_ <= keep) {
            Reallocate(keep);
        }
    }

  private:
    static constexpr size_t ALIGNMENT = PAGE_BYTES;
    static constexpr size_t BYTES_MAX = 1024 * GIB;

    void Grow(size_t size) { Reallocate(AlignUp(size > 2 * capacity_ ? size : 2 * capacity_, ALIGNMENT)); }
    void Reallocate(size_t capacity) {
        capacity = AlignUp(capacity, ALIGNMENT);
        std::unique_ptr<char, Deleter> fresh;
        if (capacity > 0) {
            fresh.reset(static_cast<char *>(::operator new(capacity, std::align_val_t(ALIGNMENT))));
        }
        if (size_ > 0) {
            memcpy(fresh.get(), data_.get(), size_);
        }
        data_ = std::move(fresh);
        capacity_ = capacity;
    }
    struct Deleter {
        void operator()(char *pointer) const { ::operator delete(pointer, std::align_val_t(ALIGNMENT)); }
    };

    std::unique_ptr<char, Deleter> data_;
    size_t size_ = 0, capacity_ = 0;
};

} // namespace rawduck
