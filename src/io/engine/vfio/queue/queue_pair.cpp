#include "io/engine/vfio/queue/queue_pair.hpp"

#include "common/invariant.hpp"
#include "common/units.hpp"
#include "io/engine/vfio/queue/device_fences.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {
namespace {

constexpr uint64_t CompletionOffset(uint16_t entries) {
    return AlignUp(entries * sizeof(SubmissionEntry), PAGE_BYTES);
}

constexpr uint64_t ListOffset(uint16_t entries) {
    return AlignUp(CompletionOffset(entries) + entries * sizeof(CompletionEntry), PAGE_BYTES);
}

} // namespace

QueuePair::QueuePair(PciFunction &function, DmaSpace &space, uint16_t id, uint16_t entries,
                     uint32_t list_bytes, const std::string &name)
    : function_(function), id_(id), entries_(entries), list_bytes_(list_bytes), submission_offset_(0),
      completion_offset_(CompletionOffset(entries)), list_offset_(ListOffset(entries)),
      memory_(space, list_offset_ + uint64_t(entries) * list_bytes, name), slots_(entries - 1u) {
    RAWDUCK_INVARIANT(entries >= 2 && list_bytes <= PAGE_BYTES && (list_bytes & (list_bytes - 1)) == 0,
                      "a ring has two entries at least, and a PRP list lies within a page");
    idle_.reserve(slots_.size());
    for (size_t i = slots_.size(); i > 0; i--) {
        idle_.push_back(static_cast<uint16_t>(i - 1));
    }
}

SubmissionEntry *QueuePair::Submissions() const {
    return reinterpret_cast<SubmissionEntry *>(memory_.Data() + submission_offset_);
}

volatile CompletionEntry *QueuePair::Completions() const {
    return reinterpret_cast<volatile CompletionEntry *>(memory_.Data() + completion_offset_);
}

void QueuePair::Reset(uint32_t doorbell_stride, ShadowDoorbell submission, ShadowDoorbell completion) {
    RAWDUCK_INVARIANT(InFlight() == 0, "queues are created again when nothing is in flight");
    memset(memory_.Data(), 0, list_offset_);
    tail_ = head_ = 0;
    phase_ = true;
    submission_doorbell_ = {REGISTER_DOORBELLS + 2u * id_ * doorbell_stride, 0, submission};
    completion_doorbell_ = {REGISTER_DOORBELLS + (2u * id_ + 1) * doorbell_stride, 0, completion};
}

uint16_t QueuePair::TakeSlot(const CommandOwner &owner, uint64_t now_ns) {
    RAWDUCK_INVARIANT(HasRoom(), "a command waits until there is a slot");
    const uint16_t slot = idle_.back();
    idle_.pop_back();
    slots_[slot] = {owner, now_ns, true};
    return slot;
}

uint64_t *QueuePair::PrpList(uint16_t slot) const {
    return reinterpret_cast<uint64_t *>(memory_.Data() + list_offset_ + uint64_t(slot) * list_bytes_);
}

uint64_t QueuePair::PrpListIova(uint16_t slot) const {
    return memory_.Iova() + list_offset_ + uint64_t(slot) * list_bytes_;
}

void QueuePair::Push(SubmissionEntry entry, uint16_t slot) {
    RAWDUCK_INVARIANT(slots_[slot].in_use, "a command has a slot");
    entry.command_id = slot;
    Submissions()[tail_] = entry;
    tail_ = static_cast<uint16_t>(tail_ + 1 == entries_ ? 0 : tail_ + 1);
}

void QueuePair::Ring() {
    Write(submission_doorbell_, tail_);
}

void QueuePair::Acknowledge() {
    Write(completion_doorbell_, head_);
}

void QueuePair::Write(Doorbell &doorbell, uint32_t value) {
    if (doorbell.written == value) {
        return;
    }
    const uint32_t before = doorbell.written;
    doorbell.written = value;
    FenceBeforeDoorbell(); // what the ring holds comes first
    if (doorbell.shadow.value) {
        *doorbell.shadow.value = value;
        // The controller writes the index and then looks at the doorbell; we write the doorbell and then look at
        // the index. Without a full fence both could see the old one.
        FenceBetweenWriteAndRead();
        if (!MustRing(static_cast<uint16_t>(*doorbell.shadow.event), static_cast<uint16_t>(before),
                      static_cast<uint16_t>(value))) {
            return;
        }
    }
    function_.RingDoorbell(doorbell.offset, value);
    doorbell_writes_++;
}

bool QueuePair::HasCompletion() const {
    return (Completions()[head_].status & 1) == (phase_ ? 1 : 0);
}

QueuePair::PopResult QueuePair::Pop(Completion &completion) {
    if (!HasCompletion()) {
        return PopResult::NOTHING;
    }
    FenceBehindPhase(); // the rest of the entry, and the data
    const volatile CompletionEntry &entry = Completions()[head_];
    const uint16_t slot = entry.command_id;
    completion.status = static_cast<uint16_t>(entry.status >> 1);
    completion.result = uint64_t(entry.result[1]) << 32 | entry.result[0];
    head_++;
    if (head_ == entries_) {
        head_ = 0;
        phase_ = !phase_;
    }
    if (slot >= slots_.size() || !slots_[slot].in_use) {
        return PopResult::VIOLATION;
    }
    completion.owner = slots_[slot].owner;
    Free(slot);
    return PopResult::COMPLETED;
}

void QueuePair::Free(uint16_t slot) {
    slots_[slot] = Slot();
    idle_.push_back(slot);
}

void QueuePair::TakeBack(std::vector<CommandOwner> &owners) {
    for (size_t i = 0; i < slots_.size(); i++) {
        if (slots_[i].in_use) {
            owners.push_back(slots_[i].owner);
            Free(static_cast<uint16_t>(i));
        }
    }
}

uint64_t QueuePair::OldestNs() const {
    uint64_t oldest = UINT64_MAX;
    for (const Slot &slot : slots_) {
        oldest = slot.in_use ? std::min(oldest, slot.taken_ns) : oldest;
    }
    return oldest;
}

} // namespace rawduck
