#include "io/queue/request_run.hpp"

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/invariant.hpp"
#include "target/nvme/nvme_status.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace rawduck {
namespace {

//! Of a command which the system interrupted, or which moved fewer bytes than one unit.
constexpr uint32_t MAX_ATTEMPTS = 16;
//! Of a command which the device or the kernel's driver gave back: each attempt may have cost a timeout of
//! half a minute and a reset of the controller.
constexpr uint32_t MAX_ATTEMPTS_NVME = 3;

//! What to do about the errors a user meets.
const char *Advice(int error_number) {
    switch (error_number) {
    case EIO:
        return "; look into the kernel log (dmesg) and the health of the device (smartctl -a)";
    case ENODATA:
        return ": media error; save what can still be read and replace the device (smartctl -a)";
    case ENOSPC:
    case EDQUOT:
        return "; make room in the file system that holds the file, or in the pool that the device is made "
               "of";
    case ENOMEM:
        return "; free some memory, or, with engine vfio, raise the limit of locked memory (ulimit -l 65536)";
    case ETIMEDOUT:
        return "; the device did not answer in time: look into the kernel log (dmesg)";
    case EINVAL:
        return "; the device refuses the alignment or size of the command: try a smaller command size, and "
               "report it";
    default:
        return "";
    }
}

//! Whether a file or device of this name was there when it was opened, and is not any more. What the kernel
//! calls a command to a device that was taken away differs from engine to engine.
bool IsGone(const std::string &target_name) {
    return target_name[0] == '/' && access(target_name.c_str(), F_OK) != 0 && errno == ENOENT;
}

} // namespace

RequestRun::RequestRun(RequestQueue &request_queue, const Capabilities &caps, IoRequest &request,
                       const std::string &target_name, const Work &work)
    : queue_(request_queue), caps_(caps), request_(request), target_name_(target_name), work_(work),
      now_ns_(MonotonicNs()) {
    RAWDUCK_INVARIANT(queue_.idle.size() == queue_.slots.size(), "one request runs on a queue at a time");
    queue_.reaped.clear();
    queue_.resubmit.clear();
}

bool RequestRun::SlotsAreWhole() const {
    return queue_.idle.size() + queue_.resubmit.size() + in_flight_ + (queue_.reaped.size() - reaped_head_) ==
           queue_.slots.size();
}

//! Whether the command transfers the end of its piece, to or from the memory that the piece lies in.
bool RequestRun::IsWithinPiece(const CommandSlot &slot) const {
    const char *const memory = slot.chunk ? slot.chunk : slot.user;
    const Command &command = slot.command;
    return command.length > 0 && command.length <= slot.length &&
           static_cast<const char *>(command.data) + command.length == memory + slot.length;
}

bool RequestRun::IsAlignedForDevice(const Command &command) const {
    return IsAligned(command.device_offset, caps_.lba_size) && IsAligned(command.length, caps_.lba_size) &&
           IsAligned(reinterpret_cast<uintptr_t>(command.data), caps_.memory_alignment);
}

void RequestRun::Run() {
    for (;;) {
        Fill();
        RAWDUCK_SLOW_INVARIANT(SlotsAreWhole(), "each slot is idle, waiting, in flight or reaped");
        const bool nothing_reaped = reaped_head_ == queue_.reaped.size();
        if (nothing_reaped && in_flight_ == 0) {
            break;
        }
        // Between copies this only sends what Fill has prepared,
        // so that the device works during the next copy.
        if (in_flight_ > 0) {
            Reap(nothing_reaped);
        }
        while (reaped_head_ < queue_.reaped.size()) {
            auto &slot = *static_cast<CommandSlot *>(queue_.reaped[reaped_head_++]->owner);
            if (Finish(slot)) {
                now_ns_ = MonotonicNs();
                break;
            }
        }
    }
    RAWDUCK_INVARIANT(queue_.resubmit.empty() || Failed(), "all of a request is done, unless it has failed");
    for (CommandSlot *slot : queue_.resubmit) {
        Release(*slot);
    }
    queue_.resubmit.clear();
    RAWDUCK_INVARIANT(queue_.idle.size() == queue_.slots.size(), "a request leaves nothing in flight");
    queue_.bounce.Rest();
    if (Failed()) {
        Throw();
    }
}

//! Submits until the queue, the slots, the bounce pool or the work are exhausted.
void RequestRun::Fill() {
    while (!Failed()) {
        CommandSlot *slot = NextSlot();
        if (!slot) {
            return;
        }
        if (!Submit(*slot)) {
            queue_.resubmit.push_back(slot);
            if (in_flight_ == 0 && reaped_head_ == queue_.reaped.size() && !Failed()) {
                Fail(Failure::Kind::SYSTEM, *slot,
                     EBUSY); // an empty queue that is full: nothing would ever move
            }
            return;
        }
    }
}

CommandSlot *RequestRun::NextSlot() {
    if (!queue_.resubmit.empty()) {
        CommandSlot *slot = queue_.resubmit.back();
        queue_.resubmit.pop_back();
        return slot;
    }
    return queue_.idle.empty() ? nullptr : NextPiece();
}

bool RequestRun::MustBounce(const char *data, uint64_t length) const {
    return !IsAligned(reinterpret_cast<uintptr_t>(data), caps_.memory_alignment) ||
           (caps_.registered_memory && !queue_.queue->Reaches(data, length));
}

uint64_t RequestRun::BytesToBoundary(uint64_t device_offset) const {
    return caps_.boundary_bytes == 0 ? UINT64_MAX
                                     : caps_.boundary_bytes - device_offset % caps_.boundary_bytes;
}

//! Cuts the next piece off the segments: at most one command
//! long, within one segment, bounced when it must be.
CommandSlot *RequestRun::NextPiece() {
    while (segment_ < work_.segment_count && segment_offset_ == work_.segments[segment_].length) {
        segment_++;
        segment_offset_ = 0;
    }
    if (segment_ == work_.segment_count) {
        return nullptr;
    }
    const Segment &segment = work_.segments[segment_];
    CommandSlot &slot = *queue_.idle.back();
    slot.user = segment.data + segment_offset_;
    const bool bounced =
        MustBounce(slot.user, std::min<uint64_t>(caps_.max_transfer_bytes, segment.length - segment_offset_));
    // A chunk comes free with a completion; with none to wait for, others may have what there is.
    const bool nothing_comes = in_flight_ == 0 && reaped_head_ == queue_.reaped.size();
    slot.chunk = !bounced ? nullptr : nothing_comes ? queue_.bounce.AcquireOrWait() : queue_.bounce.Acquire();
    const uint64_t limit = bounced ? queue_.bounce.ChunkBytes() : caps_.max_transfer_bytes;
    slot.length = static_cast<uint32_t>(std::min(
        {limit, segment.length - segment_offset_, BytesToBoundary(segment.device_offset + segment_offset_)}));
    slot.attempts = 0;
    slot.command = Command();
    slot.command.opcode = work_.opcode;
    if (work_.opcode == Opcode::WRITE) {
        slot.command.placement = work_.placement[segment.placement];
    }
    slot.command.fua = work_.fua;
    slot.command.length = slot.length;
    slot.command.device_offset = segment.device_offset + segment_offset_;
    slot.command.data = bounced ? slot.chunk : slot.user;
    slot.command.owner = &slot;
    if (bounced && !slot.chunk) {
        if (nothing_comes) {
            Fail(Failure::Kind::SYSTEM, slot, ENOMEM);
        }
        return nullptr;
    }
    queue_.idle.pop_back();
    segment_offset_ += slot.length;
    if (slot.chunk && work_.opcode == Opcode::WRITE) {
        if (in_flight_ > 0) {
            Reap(false); // lets the device start on what was copied before
        }
        std::memcpy(slot.chunk, slot.user, slot.length);
        now_ns_ = MonotonicNs();
    }
    return &slot;
}

//! False when the queue takes nothing now, or has failed.
bool RequestRun::Submit(CommandSlot &slot) {
    RAWDUCK_INVARIANT(IsWithinPiece(slot), "a command stays within its piece");
    RAWDUCK_SLOW_INVARIANT(IsAlignedForDevice(slot.command), "a command is aligned as the device demands");
    slot.depth = in_flight_ + 1;
    slot.command.result = 0;
    slot.command.nvme_status = 0;
    slot.command.cause = nullptr;
    slot.command.member = nullptr;
    slot.command.started_ns = now_ns_;
    try {
        if (!queue_.queue->Submit(slot.command)) {
            return false;
        }
    } catch (...) {
        Fail(Failure::Kind::QUEUE, slot);
        failure_.thrown = std::current_exception();
        queue_.broken = true;
        return false;
    }
    slot.attempts++;
    in_flight_++;
    return true;
}

//! noexcept: leaving here with a command in flight would let the device write to memory that is reused.
void RequestRun::Reap(bool wait) noexcept {
    auto &reaped = queue_.reaped;
    if (reaped_head_ == reaped.size()) {
        reaped.clear();
        reaped_head_ = 0;
    } else if (reaped_head_ > 0) {
        reaped.erase(reaped.begin(), reaped.begin() + static_cast<std::ptrdiff_t>(reaped_head_));
        reaped_head_ = 0;
    }
    const size_t before = reaped.size();
    reaped.resize(before + in_flight_); // within the capacity: reaped and in flight are at most the slots
    uint32_t count = queue_.queue->Reap(reaped.data() + before, in_flight_, wait);
    RAWDUCK_INVARIANT(count <= in_flight_ && (count > 0 || !wait), "what is reaped was in flight");
    reaped.resize(before + count);
    in_flight_ -= count;
    now_ns_ = count > 0 ? MonotonicNs() : now_ns_;
}

//! Handles one completion. True when data was copied, which takes about as long as a command.
bool RequestRun::Finish(CommandSlot &slot) {
    Command &command = slot.command;
    const int64_t result = command.result;
    request_.AddCommand(static_cast<uint64_t>(std::max<int64_t>(result, 0)), slot.depth,
                        now_ns_ - command.started_ns);
    if (command.fua) {
        request_.AddFua();
    }
    if (result == -EINTR || result == -EAGAIN) {
        Retry(slot);
        return false;
    }
    if (result < 0 || result > command.length) {
        Fail(Failure::Kind::SYSTEM, slot, result < 0 ? static_cast<int>(-result) : EIO);
        Release(slot);
        return false;
    }
    if (result == 0) {
        Fail(Failure::Kind::END_OF_DEVICE, slot);
        Release(slot);
        return false;
    }
    if (result < command.length) {
        Advance(slot, static_cast<uint64_t>(result));
        return false;
    }
    const bool copy = slot.chunk && work_.opcode == Opcode::READ && !Failed();
    if (copy) {
        std::memcpy(slot.user, slot.chunk, slot.length);
    }
    if (slot.chunk) {
        request_.AddBounce(slot.length);
    }
    Release(slot);
    return copy;
}

//! After a short transfer: what remains must again start at an address and an LBA which the device takes.
void RequestRun::Advance(CommandSlot &slot, uint64_t progress) {
    progress = AlignDown(progress, std::max(caps_.lba_size, caps_.memory_alignment));
    if (progress > 0) {
        slot.attempts = 0;
        slot.command.device_offset += progress;
        slot.command.data = static_cast<char *>(slot.command.data) + progress;
        slot.command.length -= static_cast<uint32_t>(progress);
    }
    Retry(slot);
}

void RequestRun::Retry(CommandSlot &slot) {
    if (Failed()) {
        Release(slot);
    } else if (slot.attempts >= (slot.command.nvme_status != 0 ? MAX_ATTEMPTS_NVME : MAX_ATTEMPTS)) {
        const int64_t result = slot.command.result;
        Fail(result < 0 ? Failure::Kind::SYSTEM : Failure::Kind::NO_PROGRESS, slot,
             result < 0 ? static_cast<int>(-result) : 0);
        Release(slot);
    } else {
        queue_.resubmit.push_back(&slot);
    }
}

void RequestRun::Release(CommandSlot &slot) {
    if (slot.chunk) {
        queue_.bounce.Release(slot.chunk);
        slot.chunk = nullptr;
    }
    queue_.idle.push_back(&slot);
}

void RequestRun::Fail(Failure::Kind kind, const CommandSlot &slot, int error_number) {
    if (!Failed()) {
        failure_.kind = kind;
        failure_.error_number = error_number;
        failure_.nvme_status = slot.command.nvme_status;
        failure_.cause = slot.command.cause;
        failure_.member = slot.command.member;
        failure_.device_offset = slot.command.device_offset;
        failure_.length = slot.command.length;
    }
}

void RequestRun::Throw() const {
    if (failure_.thrown) {
        std::rethrow_exception(failure_.thrown);
    }
    const uint64_t first_lba = failure_.device_offset / caps_.lba_size;
    const uint64_t last_lba = (failure_.device_offset + failure_.length - 1) / caps_.lba_size;
    std::string message = target_name_ + ": " + IoOperationName(request_.Operation()) + " of " +
                          std::to_string(failure_.length) + " bytes at byte offset " +
                          std::to_string(failure_.device_offset) + " (LBA " + std::to_string(first_lba) +
                          " to " + std::to_string(last_lba) + ") failed" +
                          (failure_.member ? std::string(" on ") + failure_.member : "") + ": ";
    if (IsGone(target_name_)) {
        throw Error(ErrorCode::IO, message + "the device has gone away, there is no " + target_name_ +
                                       " any more; look into the kernel log (dmesg)");
    }
    switch (failure_.kind) {
    case Failure::Kind::END_OF_DEVICE:
        message += std::string(IoOperationName(request_.Operation())) +
                   " past the end of the device; was the file or device made smaller?";
        break;
    case Failure::Kind::NO_PROGRESS:
        message += "the device transferred less than one unit in each of " + std::to_string(MAX_ATTEMPTS) +
                   " attempts; does the file or device end in the middle of a unit?";
        break;
    default:
        message += failure_.cause ? failure_.cause
                   : failure_.nvme_status != 0
                       ? NvmeStatusText(failure_.nvme_status)
                       : ErrnoText(failure_.error_number) + Advice(failure_.error_number);
    }
    throw Error(ErrorCode::IO, message);
}

} // namespace rawduck
