//! Reads and writes of any length on a device: splits requests into commands,
//! keeps them in flight together on the queue that the strategy picks,
//! bounces what is not aligned, retries what came back short, and counts.
#pragma once

#include "io/device/device.hpp"
#include "io/request/io_stats.hpp"
#include "io/request/placement.hpp"
#include "io/request/segment.hpp"
#include "io/reread_buffer.hpp"

#include <memory>
#include <vector>

namespace rawduck {

struct Request {
    Opcode opcode = Opcode::READ;
    //! A write that is durable when Execute returns. Only where Capabilities::fua says so; nothing to do
    //! without a volatile write cache.
    bool fua = false;
    std::vector<Segment> segments;
    //! A read of what is likely to be read again soon: see RereadBuffer.
    bool reread = false;
};

//! How the threads that use a device share its queues (io/queue/queue_strategy.hpp).
enum class QueueMode {
    SYNC,   //!< each thread sends one command and waits for it before the next
    SINGLE, //!< one queue for all threads, behind a lock
    POOL,   //!< several queues, each behind a lock
    THREAD  //!< one queue owned by each thread: no lock on the path
};
//! "sync", "single", "pool" or "thread". Throws Error INVALID listing the known modes.
QueueMode ParseQueueMode(const std::string &text);
const char *QueueModeName(QueueMode mode);

constexpr uint32_t QUEUE_DEPTH_MAX = 4096;

struct BlockIoOptions {
    QueueMode queue_mode = QueueMode::THREAD;
    uint32_t queue_depth = 32; //!< commands in flight per queue, 1 to QUEUE_DEPTH_MAX
    PlacementRequest placement;
    //! Size of the reread buffer; less than one of its pieces: none. Only for a device that nobody else
    //! writes to meanwhile.
    uint64_t reread_buffer_bytes = 16 * MIB;
};

//! Thread-safe. In a child made by fork() every call throws Error UNSUPPORTED: queues do not survive a fork.
//! Destroying it waits for nothing: every call has drained its commands before it returns, so the
//! owner only has to make sure that no call is running.
class BlockIo {
  public:
    //! `target_name` is what messages call the device. Throws Error INVALID or UNSUPPORTED when the options
    //! do not suit it.
    BlockIo(std::unique_ptr<Device> device, BlockIoOptions options, std::string target_name,
            std::shared_ptr<IoStats> stats);
    ~BlockIo();
    BlockIo(const BlockIo &) = delete;
    BlockIo &operator=(const BlockIo &) = delete;

    //! Runs all segments, returns when every command has completed. Throws Error IO naming target, byte range
    //! (and LBA range) and the system's text; then the contents of read buffers are undefined and any subset
    //! of a write may have reached the device.
    void Execute(const Request &request);
    //! One contiguous range.
    void Read(uint64_t device_offset, void *data, uint64_t length,
              PlacementClass placement = PlacementClass::METADATA);
    void Write(uint64_t device_offset, const void *data, uint64_t length,
               PlacementClass placement = PlacementClass::DATABASE);
    //! See Device::Flush. Skipped (and not counted) on a device without a volatile write cache.
    void Flush();
    //! Lets commands transfer to and from this memory without a copy (Capabilities::registered_memory), as
    //! Device::Register; what commands do without it, they do with a copy. False where that cannot be, or is so
    //! for all memory.
    bool Register(void *memory, uint64_t bytes);
    //! Of what was registered. Nothing to do in a child made by fork().
    void Forget(void *memory);
    //! See Device::PinnedMemory.
    const char *PinnedMemory(uint64_t device_offset, uint64_t &length, MemoryPinner &pinner);
    //! See Device::Deallocate.
    bool Deallocate(const std::vector<DeviceRange> &ranges);

    //! See Device::BeginWriting and Members.
    void BeginWriting();
    std::vector<DeviceMember> Members() const;

    const Capabilities &Caps() const;
    //! Bytes that commands may reach; 0 for a file that grows. At first as in Caps.
    uint64_t CapacityBytes() const;
    //! Asks the device how large it is now; from then on commands reach all of it. Throws Error.
    uint64_t RefreshCapacity();
    const PlacementMap &Placement() const;
    //! The map in words, or "off: " and why.
    std::string PlacementText() const;
    //! Why this engine, and why threads have had to share queues or wait for each command, if they had.
    std::string EngineReason() const;
    const std::string &TargetName() const;
    //! Memory of the bounce buffers of all queues.
    uint64_t BounceBytes() const;
    //! Memory of the reread buffer, and how often it was used.
    uint64_t RereadBytes() const;
    RereadCounters Rereads() const;
    //! Drops the range from the reread buffer: it was changed by other means than Write and Deallocate.
    void InvalidateRereads(uint64_t device_offset, uint64_t length);
    IoStats &Stats() const;

  private:
    struct State;
    void ReadThroughRereadBuffer(const Request &request);
    void Run(Opcode opcode, bool fua, const Segment *segments, size_t segment_count);
    std::unique_ptr<State> state_;
};

} // namespace rawduck
