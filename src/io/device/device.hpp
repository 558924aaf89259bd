//! The engine interface, in the five abstractions of the xNVMe paper: device, queue, command, buffer and
//! capabilities. An engine is one implementation of Device and Queue; nothing above this file knows which.
#pragma once

#include "common/memory/memory_pinner.hpp"
#include "common/units.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rawduck {

enum class Opcode : uint8_t { READ, WRITE };

//! One transfer between the device and contiguous memory, within the limits of Capabilities. Owned by the
//! caller and left in place until it is reaped.
struct Command {
    Opcode opcode = Opcode::READ;
    PlacementId placement = PlacementId::NONE;
    bool fua = false;           //!< Force Unit Access: a write that is durable when it completes
    uint32_t length = 0;        //!< bytes, a multiple of the LBA size, at most max_transfer_bytes
    uint64_t device_offset = 0; //!< bytes, a multiple of the LBA size
    void *data = nullptr;       //!< aligned to memory_alignment
    //! After completion: bytes transferred (may be short), or a negative errno.
    int64_t result = 0;
    //! Of a failed command, when the device told one (target/nvme/nvme_status.hpp); 0 otherwise.
    uint16_t nvme_status = 0;
    //! Of a failed command: why, where the engine knows more than a code. A clause that lives as long as the
    //! device; null otherwise.
    const char *cause = nullptr;
    //! Of a device that consists of several: which of them ran it, as a clause that lives as long as the device; null
    //! otherwise.
    const char *member = nullptr;
    uint32_t ring_entry = 0; //!< for the engine, while it is in flight
    //! For the submitter; engines do not touch them.
    void *owner = nullptr;
    uint64_t started_ns = 0;
};

//! What this device through this engine can do. Fixed while the device is open, but for Device::CurrentCapacity.
struct Capabilities {
    std::string engine;            //!< one of EngineNames, "xnvme:<interface>", "vfio", "memory", "simulated"
    std::string engine_reason;     //!< why this engine: asked for, or why `auto` chose it
    uint64_t capacity_bytes = 0;   //!< 0 for a file that grows (direct://)
    uint32_t lba_size = 4096;      //!< bytes
    uint32_t memory_alignment = 1; //!< bytes
    uint32_t max_transfer_bytes = 256 * 1024; //!< of one command
    //! No command crosses a multiple of it, in bytes of the device; 0: there is no such limit.
    uint64_t boundary_bytes = 0;
    uint32_t max_queue_depth = 1; //!< commands in flight per queue
    //! A queue uses a scarce resource of the system, such as a descriptor (io/queue/queue_supply.hpp).
    bool scarce_queues = false;
    bool volatile_write_cache = true;
    //! Takes writes with Force Unit Access, at the price of those writes and not of a flush for each.
    bool fua = false;
    bool deallocate = false;
    bool read_only = false;
    //! Of what has several parts: the one that may not be written to, and a clause about the shortest one.
    std::string read_only_part, shortest_part;
    //! Commands transfer to and from memory only that the queue reaches (Queue::Reaches); data elsewhere is
    //! copied.
    bool registered_memory = false;
    //! What writes may carry as Command::placement; empty when nothing, and then a clause that says why.
    std::vector<PlacementId> placements;
    std::string placement_obstacle = "this engine has no flexible data placement";
    //! Empty when waiting threads poll the device instead of sleeping until it interrupts; otherwise a clause
    //! that says why not.
    std::string polling_obstacle = "only engine io_uring_cmd polls";
};

//! Bytes of a device, both multiples of the LBA size.
struct DeviceRange {
    uint64_t device_offset = 0;
    uint64_t length = 0;
};

//! One of the devices that a striped one consists of.
struct DeviceMember {
    std::string name;    //!< of its target
    std::string uuid;    //!< its own
    std::string problem; //!< with what it says of itself, which Device::BeginWriting writes anew; empty: none
};

//! What memory is registered for. Of what a process may lock, the system leaves little to some.
enum class MemoryNeed {
    COPIES, //!< without it commands cannot run
    SPARE   //!< without it data is copied
};

//! Who will use a queue.
enum class QueueUse {
    OWNED, //!< only the thread that creates it
    SHARED //!< any thread, one at a time: a ring must not insist on one submitter
};

//! Commands in flight together. Not thread-safe: used by one thread at a time.
class Queue {
  public:
    virtual ~Queue() = default;
    //! False when the queue is full (reap, then try again). Throws Error IO only when the queue itself is
    //! broken; the failure of a command is reported in Command::result.
    virtual bool Submit(Command &command) = 0;
    //! Hands out up to `max` completed commands. With `wait`, blocks until at least one is complete; calling
    //! it so with none in flight is a bug. Never throws while a command is in flight: the device may still
    //! write to its memory.
    virtual uint32_t Reap(Command **completed, uint32_t max, bool wait) = 0;
    virtual uint32_t Depth() const = 0;
    //! See Capabilities::registered_memory. Thread-safe.
    virtual bool Reaches(const void *, uint64_t) const { return true; }
};

//! An opened target. Thread-safe. Queues must be destroyed before their device.
class Device {
  public:
    virtual ~Device() = default;
    virtual const Capabilities &Caps() const = 0;
    //! Bytes that it has now, a multiple of the LBA size: a file or device may be enlarged while it is open. Commands
    //! reach all of it. The default is for engines that do not see this. Thread-safe. Throws Error.
    virtual uint64_t CurrentCapacity() const { return Caps().capacity_bytes; }
    //! Throws Error when none can be made now.
    virtual std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) = 0;
    //! A queue of depth 1 whose commands run on the calling thread and which uses no scarce resource, so that
    //! it can be made when others cannot. The default is for engines whose queues are all of that kind.
    virtual std::unique_ptr<Queue> CreateSynchronousQueue() { return CreateQueue(1, QueueUse::SHARED); }
    //! Makes every command completed before this call durable. Throws Error IO. A failure is final: the
    //! caller must not retry (the kernel may have dropped the dirty data and report success the second time).
    virtual void Flush() = 0;
    //! Tells the device that the range holds nothing of value. Best effort: false where it is not supported.
    virtual bool Deallocate(uint64_t device_offset, uint64_t length) = 0;
    //! Lets commands transfer to and from this memory (Capabilities::registered_memory), both multiples of
    //! PAGE_BYTES, which stays mapped until it is forgotten. False when the device can reach no more.
    virtual bool Register(void *, uint64_t, MemoryNeed) { return true; }
    //! Of memory that was registered: no command uses it any more.
    virtual void Forget(void *) {}
    //! Where a range lies in memory of this process, which a pinner of this group has pinned; as long as the device is open.
    //! `length` becomes less where the rest was pinned by another call. Null for devices that are not memory, and where it
    //! cannot be pinned.
    virtual const char *PinnedMemory(uint64_t, uint64_t &length, MemoryPinner &) {
        length = 0;
        return nullptr;
    }
    //! Called once nobody else writes to the target, before the first write. Throws Error when it is not any more what
    //! was opened.
    virtual void BeginWriting() {}
    //! Those that it consists of; none: it is one. Throws Error IO.
    virtual std::vector<DeviceMember> Members() { return {}; }
    //! Of many ranges, in as few commands as the device takes.
    virtual bool DeallocateRanges(const std::vector<DeviceRange> &ranges) {
        bool taken = true;
        for (const DeviceRange &range : ranges) {
            taken = Deallocate(range.device_offset, range.length) && taken;
        }
        return taken;
    }
};

} // namespace rawduck
