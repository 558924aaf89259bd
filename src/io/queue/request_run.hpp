//! Executes one request on one queue: splits segments into commands and completes, retries or fails each.
#pragma once

#include "io/queue/request_queue.hpp"
#include "io/request/io_stats.hpp"
#include "io/request/segment.hpp"

#include <exception>

namespace rawduck {

//! Used once. Segments were checked by the caller. Invariants: a slot
//! is either idle, waiting for resubmission, in flight, or reaped; Run
//! does not return, not even with an exception, while one is in flight.
class RequestRun {
  public:
    struct Work {
        Opcode opcode;
        const PlacementMap &placement;
        bool fua;
        const Segment *segments;
        size_t segment_count;
    };

    RequestRun(RequestQueue &request_queue, const Capabilities &caps, IoRequest &request,
               const std::string &target_name, const Work &work);
    //! Throws Error IO.
    void Run();

  private:
    //! The first failure. Kept in plain values: its message
    //! is put together once nothing is in flight any more.
    struct Failure {
        enum class Kind { NONE, SYSTEM, END_OF_DEVICE, NO_PROGRESS, QUEUE } kind = Kind::NONE;
        int error_number = 0;
        uint16_t nvme_status = 0;
        const char *cause = nullptr;
        const char *member = nullptr;
        uint64_t device_offset = 0;
        uint64_t length = 0;
        std::exception_ptr thrown; //!< of the queue
    };

    bool SlotsAreWhole() const;
    bool IsWithinPiece(const CommandSlot &slot) const;
    bool IsAlignedForDevice(const Command &command) const;
    bool Failed() const { return failure_.kind != Failure::Kind::NONE; }
    bool MustBounce(const char *data, uint64_t length) const;
    uint64_t BytesToBoundary(uint64_t device_offset) const;
    void Fill();
    CommandSlot *NextSlot();
    CommandSlot *NextPiece();
    bool Submit(CommandSlot &slot);
    void Reap(bool wait) noexcept;
    bool Finish(CommandSlot &slot);
    void Advance(CommandSlot &slot, uint64_t progress);
    void Retry(CommandSlot &slot);
    void Release(CommandSlot &slot);
    void Fail(Failure::Kind kind, const CommandSlot &slot, int error_number = 0);
    [[noreturn]] void Throw() const;

    RequestQueue &queue_;
    const Capabilities &caps_;
    IoRequest &request_; //!< which is told of every command
    const std::string &target_name_;
    const Work work_;
    size_t segment_ = 0; //!< the next piece starts here
    uint64_t segment_offset_ = 0;
    uint32_t in_flight_ = 0;
    size_t reaped_head_ = 0; //!< first of queue_.reaped that is not finished yet
    //! When commands were last reaped, or something was copied: one look at the clock serves all that are submitted
    //! and finished then.
    uint64_t now_ns_;
    Failure failure_;
};

} // namespace rawduck
