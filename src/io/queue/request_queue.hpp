//! A device queue with everything that running requests on it needs, made once and reused.
#pragma once

#include "io/device/device.hpp"
#include "io/queue/bounce_pool.hpp"
#include "io/queue/queue_reservation.hpp"

#include <memory>
#include <vector>

namespace rawduck {

//! One command of a request, with what is needed to finish it.
struct CommandSlot {
    Command command;
    char *user = nullptr;  //!< where the piece lies in the caller's memory
    char *chunk = nullptr; //!< where it lies in the bounce pool; nullptr when it is transferred in place
    uint32_t length = 0; //!< of the piece, bytes; the command shrinks to the remainder after a short transfer
    uint32_t attempts = 0; //!< submissions since the last progress
    uint32_t depth = 0;    //!< commands in flight at submission, this one included
};

//! Not thread-safe: one request runs on it at a time, and drains its commands before it ends.
struct RequestQueue {
    RequestQueue(std::unique_ptr<Queue> device_queue, const Capabilities &caps, BounceMemory &bounce_memory,
                 std::unique_ptr<QueueReservation> queue_reservation);
    ~RequestQueue();

    const std::unique_ptr<QueueReservation> reservation; //!< of a scarce queue; it goes back after the queue
    std::unique_ptr<Queue> queue;
    BouncePool bounce;
    std::vector<CommandSlot> slots; //!< as many as the queue is deep
    std::vector<CommandSlot *> idle;
    std::vector<CommandSlot *> resubmit; //!< scratch of a running request, here for their capacity
    std::vector<Command *> reaped;
    bool broken = false;  //!< the queue itself failed; it is replaced before the next request
    bool stopgap = false; //!< runs one command at a time, because no better queue could be had
};

} // namespace rawduck
