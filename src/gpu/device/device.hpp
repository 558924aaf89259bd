//! Where columns are decoded and batches are put together: a GPU, or this process in its stead.
//!
//! All pointers that are named `device` lie in Memory of the same device. Calls are ordered, whichever thread makes them:
//! each sees what those before it have written, but for CopyInSlot, which runs beside the others (see there), and so does CopyInPinned. Those that
//! return a number, and CopyOut, wait for it; the others need not be complete when they return. Thread-safe, as far as
//! two calls do not write the same memory. Throws Error where the device fails.
#pragma once

#include "common/memory/memory_pinner.hpp"
#include "gpu/decode/decode.hpp"
#include "gpu/ring/asked_reads.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rawduck::gpu {

//! Memory of a device, or host memory that it copies from, given back when the last copy of the handle is gone: behind
//! all that the device was told to do with it before. Aligned to 64 bytes.
class Memory {
  public:
    Memory() = default;
    Memory(std::shared_ptr<uint8_t> data, uint64_t size) : data_(std::move(data)), size_(size) {}

    uint8_t *Data() const { return data_.get(); }
    uint64_t Size() const { return size_; }
    //! Whether both are parts of what was allocated at once.
    bool IsBeside(const Memory &other) const {
        return !data_.owner_before(other.data_) && !other.data_.owner_before(data_);
    }
    //! A part of it, which keeps all of it.
    Memory Part(uint64_t offset, uint64_t size) const {
        return {std::shared_ptr<uint8_t>(data_, data_.get() + offset), size};
    }

  private:
    std::shared_ptr<uint8_t> data_;
    uint64_t size_ = 0;
};

//! What memory is for, which decides when it can be given back.
enum class Purpose {
    WORK,   //!< used by this device alone
    COPIED, //!< written by CopyInSlot, read by everything behind WaitFor
    SHARED, //!< handed out: others may still use it in their streams when they let it go
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

//! Items of one codec and kind, among all items of a phase.
struct DecodeLaunch {
    Codec codec;
    Kind kind;
    uint32_t first_item;
    uint32_t item_count;
};

//! A moment in what a device was told to do. Arrow's consumers get the address of its handle.
class Event {
  public:
    virtual ~Event() = default;
    Event() = default;
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    //! Points to a CUevent; null where nothing has to be waited for.
    virtual void *HandleAddress() = 0;
    //! Returns when it is past.
    virtual void Wait() = 0;
};

//! Bytes and where they go; both addresses are multiples of 16.
struct CopiedPiece {
    const uint8_t *from;
    uint8_t *device_to;
    uint64_t bytes;
};

//! What a device was told to copy to the host.
class Answer {
  public:
    virtual ~Answer() = default;
    Answer() = default;
    Answer(const Answer &) = delete;
    Answer &operator=(const Answer &) = delete;
    //! Returns when it is there; it lives as long as this.
    virtual const uint8_t *Await() = 0;
};

class Device {
  public:
    virtual ~Device() = default;
    Device() = default;
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    virtual const char *Name() const = 0;
    //! As Arrow and DLPack number them: 1 is the CPU, 2 is CUDA.
    virtual int32_t TypeNumber() const = 0;
    //! Of devices of this type.
    virtual int32_t Ordinal() const = 0;
    //! 0: it has none.
    virtual uint64_t Multiprocessors() const = 0;
    //! Of host memory that is pinned for this device, by all of this process, that of volumes in memory included.
    virtual uint64_t PinnedBytes() const = 0;

    //! Contents undefined. Throws std::bad_alloc, or Error.
    virtual Memory Allocate(uint64_t bytes, Purpose purpose = Purpose::WORK) = 0;
    //! SLOT_BYTES of host memory for CopyInSlot. Waits until one is free: there are SLOT_COUNT of them, and a thread must
    //! not hold more than one.
    virtual Memory TakeSlot() = 0;
    //! To COPIED memory, from a slot that is kept as it is. Runs beside the other calls: they see it behind WaitFor.
    virtual void CopyInSlot(uint8_t *device_to, const uint8_t *slot_from, uint64_t bytes) = 0;
    //! Lets CopyInPinned read memory where it lies. Lives as long as the process.
    virtual MemoryPinner &Pinner() = 0;
    //! CHUNK_BYTES of host memory for CopyInPinned, for results on their way to any device of this GPU. Empty, and no error,
    //! where MOST_CHUNK_BYTES are in use, or no more can be pinned. Does not wait for any.
    virtual Memory TryTakeChunk() = 0;
    //! To COPIED memory, as CopyInSlot, from memory that Pinner has pinned, or from chunks, which stay as they are until
    //! CopiesSoFar is past.
    virtual void CopyInPinned(const std::vector<CopiedPiece> &pieces) = 0;
    //! What CopyInSlot and CopyInPinned were told to copy so far.
    virtual std::shared_ptr<Event> CopiesSoFar() = 0;
    //! Later calls see what was copied before the event.
    virtual void WaitFor(Event &copies) = 0;

    //! `from` may be changed when it returns.
    virtual void CopyIn(uint8_t *device_to, const void *from, uint64_t bytes) = 0;
    virtual void CopyOut(void *to, const uint8_t *device_from, uint64_t bytes) = 0;
    //! The same, for something small that is not needed yet: what was called before is waited for by Await.
    virtual std::unique_ptr<Answer> AskFor(const uint8_t *device_from, uint64_t bytes) = 0;
    //! Within the device, many at once.
    virtual void CopyPieces(const std::vector<CopiedPiece> &pieces) = 0;
    //! Within the device.
    virtual void Copy(uint8_t *device_to, const uint8_t *device_from, uint64_t bytes) = 0;
    virtual void Fill(uint8_t *device_to, uint8_t byte, uint64_t bytes) = 0;

    //! Everything that was called so far, for those who are handed SHARED memory.
    virtual std::shared_ptr<Event> Ready() = 0;
    //! Makes a stream of somebody else wait for an event; `stream` as CUDA numbers them, 1 is the default stream.
    virtual void MakeWait(uint64_t stream, Event &ready) = 0;
    //! Waits until the device is idle, whoever has told it to do something. A failure is thrown by the next Allocate.
    virtual void WaitForAllNoted() noexcept = 0;
    //! Lets go of something when the device is idle, in a thread of its own: whoever calls may hold a lock, such as
    //! Python's, that the device's work waits for.
    virtual void LetGoWhenIdle(std::shared_ptr<void> kept) noexcept = 0;
    //! As long as one is there, memory that is let go stays with the process, for what comes next; afterwards a part of it.
    virtual std::shared_ptr<void> KeepFreedMemory() = 0;

    //! One phase; `tasks`, `items` and `launches` are copied. What the tasks point to lies on the device.
    virtual void Decode(Phase phase, const std::vector<SegmentTask> &tasks,
                        const std::vector<GroupItem> &items, const std::vector<DecodeLaunch> &launches) = 0;
    //! Blocks of one size.
    virtual void VerifyChecksums(const std::vector<ChecksumTask> &tasks) = 0;

    //! offsets[0] = 0, offsets[i + 1] = offsets[i] + lengths[i]. Returns the last one.
    virtual uint64_t SumLengths(const uint32_t *device_lengths, uint64_t count, uint64_t *device_offsets) = 0;
    //! Numbers of the rows whose byte is 1, in order; room for `count`.
    virtual void ListRows(const uint8_t *device_bytes, uint64_t count, uint32_t *device_rows) = 0;
    //! Copies values of `width` bytes of listed rows, one behind the other.
    virtual void Gather(const uint8_t *device_from, uint64_t width, const RowSelection &rows,
                        uint8_t *device_to) = 0;
    //! The most rows, from the start of the selection, whose strings have at most `byte_limit` bytes together.
    virtual StringExtent Fitting(const uint64_t *device_offsets, const RowSelection &rows,
                                 uint64_t byte_limit) = 0;
    //! Appends strings, of `bytes` bytes together: `device_to[0]` is where they start in `device_chars_to`, the other
    //! offsets are written.
    virtual void GatherStrings(const uint64_t *device_offsets, const uint8_t *device_chars,
                               const RowSelection &rows, uint64_t bytes, int32_t *device_to,
                               uint8_t *device_chars_to) = 0;
    //! A bit a row, the lowest first, of bytes that are 0 or 1.
    virtual void PackBits(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) = 0;
    //! The same, and returns how many are 0.
    virtual uint64_t PackBitsAndCount(const uint8_t *device_bytes, uint64_t count, uint8_t *device_bits) = 0;
    //! `scale`: the power of ten of TO_FLOAT64.
    virtual void Convert(Conversion conversion, const uint8_t *device_from, uint64_t width, uint64_t count,
                         uint32_t scale, uint8_t *device_to) = 0;
    //! Writes `value` (`width` bytes, at most 8) where the byte of a row is 0.
    virtual void ReplaceNulls(const uint8_t *device_valid, uint64_t count, const void *value, uint64_t width,
                              uint8_t *device_values) = 0;

    //! Begins AskedReads in so many thread blocks; what is returned is past when they have ended. Threads of this process
    //! must be serving the ring already. Nothing else is called until then: the device waits for these threads, and it, or
    //! its driver, might wait for the device.
    virtual std::shared_ptr<Event> AskForReads(const RingArguments &arguments, uint64_t blocks) = 0;

    static constexpr uint64_t SLOT_BYTES = 16 << 20;
    static constexpr uint64_t SLOT_COUNT = 8;
    static constexpr uint64_t CHUNK_BYTES = 32 << 10;
    static constexpr uint64_t MOST_CHUNK_BYTES = 64 << 20;
};

} // namespace rawduck::gpu
