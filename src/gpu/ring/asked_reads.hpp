#pragma once
//! A kernel that starts reads itself, and threads of the processor (gpu/ring/host) that serve them: no GPU reaches a drive's
//! queues here. They meet in a ring of slots in pinned host memory.
//!
//! A ticket is the number of a read. Its slot is `ticket % slots`, its turn `ticket / slots`. A mark says how many turns of
//! its slot have come so far, so that what an earlier turn has left there is not taken for an answer:
//!
//!     given_back  the block that has copied the data out of the slot; memory of the device     free for turn t: is t
//!     posted      the block that has written the request; host memory                          asked for in turn t: is t + 1
//!     served      the thread that has read the data into the slot; host memory                 there in turn t: is t + 1
//!
//! Nothing can wait in a circle: a block holds one slot at most, waits for it only before it holds one, and requests are
//! served in the order of tickets, so that a read never waits for a later one.
//!
//! No wait is for ever: RING_ABORTED in `served` ends all blocks, and one that has waited for `patience_ns` says so in
//! RingState and ends the others.
#include "gpu/columns/pull.hpp"
#include "gpu/ring/marks.hpp"

namespace rawduck::gpu {

constexpr u64 RING_ABORTED = ~0ull;

//! Written by the device alone.
struct alignas(64) RingRequest {
    u64 offset; //!< bytes of the target
    u64 bytes;
    u64 posted;
};

//! Written by the processor alone.
struct alignas(64) RingAnswer {
    u64 served;
};

//! How reads can end, otherwise than by being all there.
enum class RingEnd : u64 {
    NONE,
    ABORTED,   //!< by the processor
    DATA_LATE, //!< a block has waited too long for its data
    SLOT_LATE  //!< a block has waited too long for its slot
};

//! In memory of the device, 0 at first.
struct RingState {
    u64 next_ticket;
    u64 end; //!< a RingEnd, the first one
    u64 ended_ticket;
};

struct RingArguments {
    // In pinned host memory, one for each slot, the marks 0 at first.
    RingRequest *requests;
    RingAnswer *answers;
    const u8 *data; //!< `slot_bytes` for each slot
    u64 slots;
    u64 slot_bytes;
    // In memory of the device.
    const u64 *offsets; //!< of each read
    u64 reads;
    u64 read_bytes; //!< of each, a multiple of PULL_LINE
    RingState *state;
    u64 *given_back;      //!< for each slot, 0 at first
    u8 *to;               //!< read i goes to `i * read_bytes`
    u64 *nanoseconds;     //!< of each read, from its ticket until it is there
    u64 *multiprocessors; //!< for each thread block
    u64 patience_ns;
};

struct AskedReads {
    using Arguments = RingArguments;
    struct Shared {
        u64 ticket;
        u64 begin_ns;
        u32 has_data;
    };

    static GPU_FUNCTION void Run(const Arguments &arguments, u32 block, Shared &shared) {
        GPU_LANES(lane) {
            if (lane == 0) {
                arguments.multiprocessors[block] = OwnMultiprocessor();
            }
        }
        for (;;) {
            GPU_LANES(lane) {
                if (lane == 0) {
                    shared.has_data = Ask(arguments, shared) ? 1 : 0;
                }
            }
            GPU_SYNC();
            if (!shared.has_data) {
                return;
            }
            const u64 slot = shared.ticket % arguments.slots;
            CopyOut(arguments.data + slot * arguments.slot_bytes,
                    arguments.to + shared.ticket * arguments.read_bytes, arguments.read_bytes);
            GPU_SYNC();
            GPU_LANES(lane) {
                if (lane == 0) {
                    arguments.nanoseconds[shared.ticket] = ElapsedNs() - shared.begin_ns;
                    StoreMark(arguments.given_back + slot, shared.ticket / arguments.slots + 1);
                }
            }
        }
    }

    //! Whether the data of `shared.ticket` is in its slot. By one lane.
    static GPU_FUNCTION bool Ask(const Arguments &arguments, Shared &shared) {
        if (LoadMark(&arguments.state->end) != static_cast<u64>(RingEnd::NONE)) {
            return false;
        }
        const u64 ticket = TakeTicket(&arguments.state->next_ticket);
        if (ticket >= arguments.reads) {
            return false;
        }
        shared.ticket = ticket;
        shared.begin_ns = ElapsedNs();
        const u64 slot = ticket % arguments.slots, turn = ticket / arguments.slots;
        if (!Await(arguments, shared, arguments.given_back + slot, turn, RingEnd::SLOT_LATE)) {
            return false;
        }
        RingRequest &request = arguments.requests[slot];
        request.offset = arguments.offsets[ticket];
        request.bytes = arguments.read_bytes;
        StoreMark(&request.posted, turn + 1);
        return Await(arguments, shared, &arguments.answers[slot].served, turn + 1, RingEnd::DATA_LATE);
    }

    //! Patience is that of a read from its beginning, for its slot and its data together.
    static GPU_FUNCTION bool Await(const Arguments &arguments, const Shared &shared, const u64 *mark,
                                   u64 wanted, RingEnd late) {
        for (;;) {
            const u64 found = LoadMark(mark);
            if (found == wanted) {
                return true;
            }
            const bool is_late = ElapsedNs() - shared.begin_ns > arguments.patience_ns;
            if (found == RING_ABORTED || is_late) {
                End(arguments, shared.ticket, found == RING_ABORTED ? RingEnd::ABORTED : late);
                return false;
            }
            RestBetweenLooks();
        }
    }

    //! No block begins another read, and none waits for this slot any longer.
    static GPU_FUNCTION void End(const Arguments &arguments, u64 ticket, RingEnd end) {
        if (SetFirst(&arguments.state->end, static_cast<u64>(end))) {
            arguments.state->ended_ticket = ticket;
        }
        StoreMark(arguments.given_back + ticket % arguments.slots, RING_ABORTED);
    }

    static GPU_FUNCTION void CopyOut(const u8 *from, u8 *to, u64 bytes) {
        using Line = PulledPieces::Line;
        const u64 lines = bytes / PULL_LINE;
        for (u64 first = 0; first < lines; first += PulledPieces::LINES) {
            const u64 left = lines - first;
            PulledPieces::Copy(reinterpret_cast<const Line *>(from) + first,
                               reinterpret_cast<Line *>(to) + first,
                               static_cast<u32>(left < PulledPieces::LINES ? left : PulledPieces::LINES));
        }
    }
};

//! Its name.
constexpr const char *ASK_KERNEL = "ask_for_reads";

//! X(NAME, FUNCTION), as GPU_COLUMN_KERNELS.
#define GPU_RING_KERNELS(X) X(ask_for_reads, AskedReads)

} // namespace rawduck::gpu
