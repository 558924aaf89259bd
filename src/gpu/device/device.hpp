//! Where columns are decoded and batches are put together: a GPU, or this process in its stead.
//!
//! All pointers that are named `device` lie in Memory of the same device. Calls are ordered: each sees what those
//! before it have written. Thread-safe, as far as two calls do not write the same memory.
#pragma once

#include "gpu/decode/decode.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rawduck::gpu {

//! Memory of a device, given back when the last copy of the handle is gone. Aligned to 64 bytes.
class Memory {
  public:
    Memory() = default;
    Memory(std::shared_ptr<uint8_t> data, uint64_t size) : data_(std::move(data)), size_(size) {}

    uint8_t *Data() const { return data_.get(); }
    uint64_t Size() const { return size_; }

  private:
    std::shared_ptr<uint8_t> data_;
    uint64_t size_ = 0;
};

//! How the values of a column become those of a batch.
enum class Conversion {
    NONE,
    INT16_TO_INT32, //!< decimals of up to four digits: Arrow has none of 16 bits
    TO_INT64,       //!< an integer of 16 or 32 bits
    TO_FLOAT64,     //!< an integer of up to 128 bits, divided by a power of ten
    UUID_BYTES,     //!< as DuckDB stores it, to the 16 bytes in the order in which it is written
};

//! Rows `first` to before `first + count` of a column, or those of them that `rows` lists.
struct RowSelection {
    const uint32_t *device_rows = nullptr; //!< null: all of them
    uint64_t first = 0;                    //!< row, or place in the list
    uint64_t count = 0;
};

struct StringExtent {
    uint64_t rows = 0;
    uint64_t bytes = 0; //!< of their strings
};

class Device {
  public:
    virtual ~Device() = default;
    Device() = default;
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    virtual const char *Name() const = 0;
    //! As Arrow and DLPack number them: 1 is the CPU.
    virtual int32_t TypeNumber() const = 0;

    //! Contents undefined. Throws std::bad_alloc.
    virtual Memory Allocate(uint64_t bytes) = 0;
    virtual void CopyIn(uint8_t *device_to, const void *from, uint64_t bytes) = 0;
    virtual void CopyOut(void *to, const uint8_t *device_from, uint64_t bytes) = 0;
    virtual void Fill(uint8_t *device_to, uint8_t byte, uint64_t bytes) = 0;

    //! One launch; `tasks` and `items` are copied. What the tasks point to lies on the device.
    virtual void Decode(Codec codec, Kind kind, Phase phase, const std::vector<SegmentTask> &tasks,
                        const std::vector<GroupItem> &items) = 0;
    virtual void VerifyChecksums(const std::vector<ChecksumTask> &tasks) = 0;

    //! offsets[0] = 0, offsets[i + 1] = offsets[i] + lengths[i]. Returns the last one.
    virtual uint64_t SumLengths(const uint32_t *device_lengths, uint64_t count, uint64_t *device_offsets) = 0;
    //! Numbers of the rows whose byte is 1, in order. Returns how many.
    virtual uint64_t ListRows(const uint8_t *device_bytes, uint64_t count, uint32_t *device_rows) = 0;
    //! Copies values of `width` bytes, one behind the other.
    virtual void Gather(const uint8_t *device_from, uint64_t width, const RowSelection &rows,
                        uint8_t *device_to) = 0;
    //! The most rows, from the start of the selection, whose strings have at most `byte_limit` bytes together.
    virtual StringExtent Fitting(const uint64_t *device_offsets, const RowSelection &rows,
                                 uint64_t byte_limit) = 0;
    //! Appends strings: `device_to[0]` is where they start in `device_chars_to`, the other offsets are written.
    virtual void GatherStrings(const uint64_t *device_offsets, const uint8_t *device_chars,
                               const RowSelection &rows, int32_t *device_to, uint8_t *device_chars_to) = 0;
    //! A bit a row, the lowest first, of bytes that are 0 or 1. Returns how many are 0.
    virtual uint64_t PackBits(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) = 0;
    //! `scale`: the power of ten of TO_FLOAT64.
    virtual void Convert(Conversion conversion, const uint8_t *device_from, uint64_t width, uint64_t count,
                         uint32_t scale, uint8_t *device_to) = 0;
    //! Writes `value` (`width` bytes) where the byte of a row is 0.
    virtual void ReplaceNulls(const uint8_t *device_valid, uint64_t count, const void *value, uint64_t width,
                              uint8_t *device_values) = 0;
};

//! The device that a person named; "" is what RAWDUCK_GPU in the environment says. Throws Error where there is none.
std::shared_ptr<Device> OpenDevice(const std::string &name);

} // namespace rawduck::gpu
