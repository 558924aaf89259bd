#include "io/queue/queue_reservation.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <sys/resource.h>

namespace rawduck {
namespace {

//! One in this many of the process's queues is reserved for queues that threads share: otherwise a target
//! that is opened last would get none at all.
constexpr int32_t SHARED_PART = 4;
constexpr rlim_t DESCRIPTORS_PART = 4;

//! In this process, of all targets. A child made by fork()
//! inherits its parent's descriptors, and so their number.
std::atomic<int32_t> in_process{0};

//! Adds one unless that would make it more than `most`.
bool TryAdd(std::atomic<int32_t> &count, int32_t most) {
    int32_t seen = count.load();
    while (seen < most) {
        if (count.compare_exchange_weak(seen, seen + 1)) {
            return true;
        }
    }
    return false;
}

} // namespace

int32_t QueueReservation::ProcessMax() {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return PROCESS_MAX;
    }
    return static_cast<int32_t>(std::min<rlim_t>(limit.rlim_cur / DESCRIPTORS_PART, rlim_t{PROCESS_MAX}));
}

std::unique_ptr<QueueReservation> QueueReservation::TryTake(std::atomic<int32_t> *owned) {
    const int32_t process_max = ProcessMax();
    if (owned && !TryAdd(*owned, OWNED_MAX)) {
        return nullptr;
    }
    if (!TryAdd(in_process, owned ? process_max - process_max / SHARED_PART : process_max)) {
        if (owned) {
            owned->fetch_sub(1);
        }
        return nullptr;
    }
    return std::unique_ptr<QueueReservation>(new QueueReservation(owned));
}

QueueReservation::~QueueReservation() {
    const int32_t before = in_process.fetch_sub(1);
    RAWDUCK_INVARIANT(before > 0, "a queue was given back that nobody counted");
    if (owned_) {
        const int32_t owned_before = owned_->fetch_sub(1);
        RAWDUCK_INVARIANT(owned_before > 0, "a queue was given back that its target did not count");
    }
}

} // namespace rawduck
