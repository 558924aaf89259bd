#include "io/engine/ring/ring_buffers.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/memory/huge_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace rawduck {
namespace {

constexpr uint64_t PART_BYTES = HugeMemory::HUGE_PAGE_BYTES;
//! Parts of which the uses are counted. What is used seldom makes room.
constexpr size_t PARTS_MAX = 128;
//! After a refusal, this many commands pass before registering is tried again.
constexpr uint32_t PAUSE_COMMANDS = 4096;

// Of Linux 5.19 (include/uapi/linux/io_uring.h), in case the C headers are older.
constexpr unsigned REGISTER_TABLE = 15, REGISTER_UPDATE = 16, UNREGISTER_TABLE = 1;
constexpr uint32_t SPARSE = 1;
struct TableRegistration {
    uint32_t slots, flags;
    uint64_t reserved, data, tags;
};
struct SlotUpdate {
    uint32_t first_slot, reserved;
    uint64_t data, tags;
    uint32_t slots, reserved2;
};
static_assert(sizeof(TableRegistration) == 32 && sizeof(SlotUpdate) == 32, "as the kernel reads them");

struct Totals {
    std::atomic<uint64_t> bytes{0}, commands{0};
    std::mutex mutex; //!< guards obstacle; no other lock is taken under it
    std::string obstacle;
};

//! Never destroyed: rings are closed until the process ends.
Totals &AllRings() {
    static Totals &totals = *new Totals;
    return totals;
}

//! 0 or an errno.
int RegisterWith(io_uring &ring, unsigned operation, const void *argument, unsigned count) {
    return syscall(SYS_io_uring_register, ring.ring_fd, operation, argument, count) < 0 ? errno : 0;
}

//! Without memory, a slot keeps nothing.
int SetSlot(io_uring &ring, int slot, uint64_t begin, uint64_t bytes) {
    const iovec memory = {reinterpret_cast<void *>(begin), bytes};
    SlotUpdate update = {};
    update.first_slot = static_cast<uint32_t>(slot);
    update.data = reinterpret_cast<uint64_t>(&memory);
    update.slots = 1;
    return RegisterWith(ring, REGISTER_UPDATE, &update, sizeof update);
}

std::string Obstacle(int error_number) {
    return error_number == EINVAL ? "this kernel's rings have no table of buffers; run Linux 5.19 or newer"
           : error_number == ENOMEM
               ? "the limit of locked memory does not suffice; raise it (ulimit -l)"
               : "a ring refuses memory (" + ErrnoText(error_number) + "); look into the kernel log (dmesg)";
}

} // namespace

RingBuffers::Counts RingBuffers::Count() {
    Totals &totals = AllRings();
    std::lock_guard<std::mutex> guard(totals.mutex);
    return {totals.bytes.load(), totals.commands.load(), totals.obstacle};
}

void RingBuffers::NoteObstacle(std::string why) {
    Totals &totals = AllRings();
    std::lock_guard<std::mutex> guard(totals.mutex);
    totals.obstacle = std::move(why);
}

RingBuffers::RingBuffers() {
    parts_.reserve(PARTS_MAX);
}

int RingBuffers::Find(io_uring &ring, Use use, const void *data, uint32_t length) {
    try {
        if (StableMemory::Version() != version_) {
            version_ = StableMemory::Copy(ranges_);
        }
        const auto address = reinterpret_cast<uint64_t>(data);
        Part *const part = PartOf(use, address, length);
        if (!part) {
            return NONE;
        }
        if (part->slot == NONE &&
            (++part->uses < USES_MIN || !Register(ring, *part, AlignDown(address, PART_BYTES), PART_BYTES))) {
            return NONE;
        }
        AllRings().commands.fetch_add(1, std::memory_order_relaxed);
        return part->slot;
    } catch (const std::bad_alloc &) {
        return NONE;
    }
}

//! Null when the memory is not listed, lies in two parts, or nothing is gained with it.
RingBuffers::Part *RingBuffers::PartOf(Use use, uint64_t address, uint32_t length) {
    const auto next = std::upper_bound(
        ranges_.begin(), ranges_.end(), address,
        [](uint64_t wanted, const StableMemory::Range &range) { return wanted < range.begin; });
    if (next == ranges_.begin()) {
        return nullptr;
    }
    const StableMemory::Range &range = *std::prev(next);
    const uint64_t begin = AlignDown(address, PART_BYTES);
    const bool is_whole = begin >= range.begin && begin + PART_BYTES <= range.end;
    const bool gains = use == Use::ALL || range.pages != HugeMemory::Pages::HUGE;
    if (!is_whole || !gains || address + length > begin + PART_BYTES) {
        return nullptr;
    }
    const uint64_t index = (begin - range.begin) / PART_BYTES;
    const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part &part) {
        return part.range == range.number && part.index == index;
    });
    if (found != parts_.end()) {
        return &*found;
    }
    if (parts_.size() == PARTS_MAX) {
        parts_.erase(
            std::remove_if(parts_.begin(), parts_.end(), [](const Part &part) { return part.slot == NONE; }),
            parts_.end());
    }
    parts_.push_back({range.number, index});
    return &parts_.back();
}

bool RingBuffers::Register(io_uring &ring, Part &part, uint64_t begin, uint64_t bytes) {
    if (pause_ > 0) {
        pause_--;
        return false;
    }
    if (~used_slots_ == 0 || !MakeTable(ring)) {
        return false;
    }
    static_assert(SLOTS == 32, "a bit for each slot");
    const int slot = __builtin_ctz(~used_slots_);
    if (const int error_number = SetSlot(ring, slot, begin, bytes)) {
        NoteObstacle(Obstacle(error_number));
        pause_ = PAUSE_COMMANDS;
        return false;
    }
    used_slots_ |= 1U << slot;
    part.slot = slot;
    AllRings().bytes.fetch_add(PART_BYTES);
    return true;
}

bool RingBuffers::MakeTable(io_uring &ring) {
    if (has_table_) {
        return true;
    }
    TableRegistration table = {};
    table.slots = SLOTS;
    table.flags = SPARSE;
    if (const int error_number = RegisterWith(ring, REGISTER_TABLE, &table, sizeof table)) {
        NoteObstacle(Obstacle(error_number));
        pause_ = PAUSE_COMMANDS;
        return false;
    }
    has_table_ = true;
    return true;
}

bool RingBuffers::Knows(uint64_t range) const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [&](const Part &part) { return part.range == range && part.slot != NONE; });
}

void RingBuffers::DropRemoved(io_uring &ring) {
    version_ = StableMemory::Copy(ranges_);
    for (Part &part : parts_) {
        const bool is_listed =
            std::any_of(ranges_.begin(), ranges_.end(),
                        [&](const StableMemory::Range &range) { return range.number == part.range; });
        if (!is_listed) {
            Release(ring, part);
        }
    }
}

void RingBuffers::Drop(io_uring &ring, uint64_t range) noexcept {
    for (Part &part : parts_) {
        if (part.range == range) {
            Release(ring, part);
        }
    }
}

void RingBuffers::Release(io_uring &ring, Part &part) noexcept {
    if (part.slot != NONE) {
        const int error_number = SetSlot(ring, part.slot, 0, 0);
        RAWDUCK_INVARIANT(error_number == 0, "a ring forgets memory that it knows");
        used_slots_ &= ~(1U << part.slot);
        part.slot = NONE;
        AllRings().bytes.fetch_sub(PART_BYTES);
    }
    part.uses = 0;
}

void RingBuffers::DropAll(io_uring &ring) noexcept {
    if (has_table_) {
        const int error_number = RegisterWith(ring, UNREGISTER_TABLE, nullptr, 0);
        RAWDUCK_INVARIANT(error_number == 0, "a ring gives up its table of buffers");
    }
    Reset();
}

void RingBuffers::Reset() noexcept {
    AllRings().bytes.fetch_sub(PART_BYTES * static_cast<uint64_t>(__builtin_popcount(used_slots_)));
    parts_.clear();
    used_slots_ = 0;
    has_table_ = false;
}

} // namespace rawduck
