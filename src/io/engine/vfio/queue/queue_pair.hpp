//! A submission and a completion queue in memory that the controller reaches, and the rules of their rings.
#pragma once

#include "io/engine/vfio/dma/dma_space.hpp"
#include "io/engine/vfio/nvme_registers.hpp"

#include <string>
#include <vector>

namespace rawduck {

//! Doorbells in memory (Doorbell Buffer Config): the controller is told in BAR0 only when it asks for it with the
//! event index, since that costs an exit where it is emulated. Null: it has none.
struct ShadowDoorbell {
    volatile uint32_t *value = nullptr;
    volatile uint32_t *event = nullptr;
};

//! Whether the controller, which wants to hear of the entry behind `event`, must be told that the doorbell went
//! from `before` to `now`. All of them are 16-bit numbers that wrap.
constexpr bool MustRing(uint16_t event, uint16_t before, uint16_t now) {
    return static_cast<uint16_t>(now - event - 1) < static_cast<uint16_t>(now - before);
}

//! Is told what became of its commands.
class CommandSink {
  public:
    virtual ~CommandSink() = default;
    //! `status` is 0 or an NVMe status. `cause`: why, where the driver knows more than a code; may be null, and
    //! lives as long as the controller. Called with the lane locked; must not throw.
    virtual void Complete(void *command, uint16_t status, uint64_t result, const char *cause) noexcept = 0;
};

struct CommandOwner {
    CommandSink *sink = nullptr;
    void *command = nullptr;
};

//! Not thread-safe. A slot holds one command from TakeSlot until it is completed or failed; its number is the
//! command's identifier. There is a slot less than entries, so neither ring is ever full.
class QueuePair {
  public:
    struct Completion {
        CommandOwner owner;
        uint16_t status = 0; //!< without the phase
        uint64_t result = 0;
    };
    enum class PopResult { NOTHING, COMPLETED, VIOLATION };

    //! `list_bytes`: a power of two up to PAGE_BYTES, for the PRP list of each slot.
    QueuePair(PciFunction &function, DmaSpace &space, uint16_t id, uint16_t entries, uint32_t list_bytes,
              const std::string &name);

    uint16_t Id() const { return id_; }
    uint16_t Entries() const { return entries_; }
    uint64_t SubmissionIova() const { return memory_.Iova() + submission_offset_; }
    uint64_t CompletionIova() const { return memory_.Iova() + completion_offset_; }

    //! As the controller expects it when the queues are created. No slot may be in use.
    void Reset(uint32_t doorbell_stride, ShadowDoorbell submission, ShadowDoorbell completion);

    bool HasRoom() const { return !idle_.empty(); }
    uint32_t InFlight() const { return static_cast<uint32_t>(slots_.size() - idle_.size()); }
    uint16_t TakeSlot(const CommandOwner &owner, uint64_t now_ns);
    uint64_t *PrpList(uint16_t slot) const;
    uint64_t PrpListIova(uint16_t slot) const;
    //! Puts the entry into the ring; the controller does not know of it before Ring.
    void Push(SubmissionEntry entry, uint16_t slot);
    void Ring();

    bool HasCompletion() const;
    //! VIOLATION: the controller completed what it was not given; nothing that it says can be relied on.
    PopResult Pop(Completion &completion);
    //! Tells the controller which completions were taken. To be called after a number of Pops.
    void Acknowledge();

    //! Frees the slots of all commands in flight, whose completions will not come, and adds their owners.
    void TakeBack(std::vector<CommandOwner> &owners);
    //! When the oldest command in flight was given its slot; UINT64_MAX without one.
    uint64_t OldestNs() const;
    //! Writes to doorbells in BAR0, ever.
    uint64_t DoorbellWrites() const { return doorbell_writes_; }

  private:
    struct Slot {
        CommandOwner owner;
        uint64_t taken_ns = 0;
        bool in_use = false;
    };
    struct Doorbell {
        uint32_t offset = 0; //!< in BAR0
        uint32_t written = 0;
        ShadowDoorbell shadow;
    };

    SubmissionEntry *Submissions() const;
    volatile CompletionEntry *Completions() const;
    void Write(Doorbell &doorbell, uint32_t value);
    void Free(uint16_t slot);

    PciFunction &function_;
    const uint16_t id_, entries_;
    const uint32_t list_bytes_;
    const uint64_t submission_offset_, completion_offset_, list_offset_;
    DmaMemory memory_;
    std::vector<Slot> slots_;
    std::vector<uint16_t> idle_;
    uint16_t tail_ = 0, head_ = 0;
    bool phase_ = true;
    Doorbell submission_doorbell_, completion_doorbell_;
    uint64_t doorbell_writes_ = 0;
};

} // namespace rawduck
