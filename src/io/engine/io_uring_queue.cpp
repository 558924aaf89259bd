#include "io/engine/io_uring_queue.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/scope_exit.hpp"
#include "io/engine/ring/ring_workers.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <thread>

// Flags of newer kernels, in case the C headers are older. A kernel that does not know one answers EINVAL.
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_TASKRUN_FLAG
#define IORING_SETUP_TASKRUN_FLAG (1U << 9)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

namespace rawduck {
namespace {

//! How long a kernel short of memory is asked again before the commands fail: a second in all.
constexpr uint32_t MAX_STALLS = 1000;
constexpr long STALL_PAUSE_NS = 1000000;
//! The most that the kernel makes (IORING_MAX_ENTRIES).
constexpr uint32_t RING_ENTRIES_MAX = 32768;

//! From the newest kernels' to none: completions run when the owner asks for them, not by interrupting it.
constexpr unsigned SETUP_FLAGS[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_DEFER_TASKRUN,
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    0,
};

//! In the user data of an entry, beside the command's address: it was prepared with a buffer.
constexpr uint64_t REGISTERED = 1;
static_assert(alignof(Command) > REGISTERED, "this bit of an address is free");

//! What only a ring with a single submitting thread can have.
constexpr unsigned OWNER_FLAGS = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;

std::string DescribeObstacle(int error_number) {
    if (error_number == ENOSYS) {
        return "this kernel has none; run Linux 5.6 or newer, or allow it in the container's seccomp profile";
    }
    if (error_number == EPERM || error_number == EACCES) {
        std::string level = ReadAttribute("/proc/sys/kernel/io_uring_disabled");
        if (level == "1" || level == "2") {
            return "it is disabled by the administrator (kernel.io_uring_disabled is " + level +
                   "); set it to 0 with sysctl";
        }
        return "the system refuses it (" + ErrnoText(error_number) +
               "); allow it in the container's seccomp profile";
    }
    if (error_number == ENOMEM) {
        return "no memory for a ring (" + ErrnoText(error_number) +
               "); raise the limit of locked memory (ulimit -l)";
    }
    if (IsWantOfDescriptors(error_number)) {
        return "no file descriptor for a ring (" + ErrnoText(error_number) + ")";
    }
    return "a ring cannot be made (" + ErrnoText(error_number) + "); look into the kernel log (dmesg)";
}

} // namespace

RingSupport::RingSupport(unsigned base_flags, std::vector<int> opcodes, std::string missing_opcodes)
    : base_flags_(base_flags), opcodes_(std::move(opcodes)), missing_opcodes_(std::move(missing_opcodes)) {}

std::string RingSupport::Obstacle() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!known_) {
        Probe();
        known_ = obstacle_.empty();
    }
    return obstacle_;
}

unsigned RingSupport::SetupFlags(QueueUse use) {
    std::lock_guard<std::mutex> guard(mutex_);
    return base_flags_ | (use == QueueUse::OWNED ? setup_flags_ : setup_flags_ & ~OWNER_FLAGS);
}

void RingSupport::Probe() {
    obstacle_.clear();
    io_uring ring;
    int result = -EINVAL;
    for (unsigned flags : SETUP_FLAGS) {
        setup_flags_ = flags;
        result = io_uring_queue_init(2, &ring, base_flags_ | flags);
        if (result != -EINVAL) {
            break;
        }
    }
    if (result != 0) {
        obstacle_ = result == -EINVAL && base_flags_ != 0 ? missing_opcodes_ : DescribeObstacle(-result);
        return;
    }
    io_uring_probe *known_opcodes = io_uring_get_probe_ring(&ring);
    for (int opcode : opcodes_) {
        if (!known_opcodes || !io_uring_opcode_supported(known_opcodes, opcode)) {
            obstacle_ = missing_opcodes_;
        }
    }
    io_uring_free_probe(known_opcodes);
    io_uring_queue_exit(&ring);
}

IoUringQueue::IoUringQueue(const std::string &target_name, uint32_t depth, unsigned setup_flags,
                           Carries carries, const char *alternative)
    : target_name_(target_name), depth_(std::max(1u, std::min(depth, MAX_DEPTH))), alternative_(alternative),
      kind_(MakeRingKind(depth_, setup_flags)) {
    if (carries == Carries::NVME_COMMANDS) {
        entries_.emplace(RingEntries::CountFor(depth_, RING_ENTRIES_MAX));
    }
    waiting_.reserve(depth_);
    Open();
}

int IoUringQueue::Make(uint32_t entries) {
    kind_.entries = entries;
    if (TakeIdleRing(kind_, ring_)) {
        return 0;
    }
    int result = io_uring_queue_init(entries, &ring_, kind_.setup_flags);
    if (result != 0 && CloseIdleRings()) {
        result = io_uring_queue_init(entries, &ring_, kind_.setup_flags);
    }
    if (result == 0 && entries_) {
        result = -LimitRingWorkers(ring_);
        if (result != 0) {
            io_uring_queue_exit(&ring_);
        }
    }
    return result;
}

void IoUringQueue::Open() {
    int result = Make(entries_ ? entries_->Count() : depth_);
    while (result == -ENOMEM && entries_ && entries_->Count() / 2 >= depth_) {
        // Where memory is in small pieces, some kernels cannot make a long one.
        entries_.emplace(entries_->Count() / 2);
        result = Make(entries_->Count());
    }
    if (result != 0) {
        throw Error(ErrorCode::IO, target_name_ + ": cannot make an io_uring for one more thread: " +
                                       DescribeObstacle(-result) + ", or use engine '" + alternative_ + "'");
    }
    open_ = true;
    broken_ = 0;
    if (entries_) {
        entries_->Reset();
    }
    // The file is not registered with the ring, although that would save the
    // kernel a lookup per command: a ring is torn down in the background,
    // and the device would stay open, and busy, after it has been closed.
}

IoUringQueue::~IoUringQueue() {
    RAWDUCK_INVARIANT(waiting_.empty(), "a queue is destroyed when all of its commands were reaped");
    if (watches_) {
        StableMemory::Unwatch(watcher_);
    }
    Close();
}

// Called while memory is given back: what is in flight is of other memory, and is not waited for.
void IoUringQueue::Forget(uint64_t range, StableMemory::Afterwards &afterwards) noexcept {
    must_drop_ = true;
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || !open_ || !buffers_.Knows(range)) {
        return; // its thread sees the flag before it rests
    }
    if (kind_.IsForThisThread()) {
        buffers_.Drop(ring_, range);
    } else {
        // Nobody uses it from here on. Closing it takes longer than others should wait for the lock of the list.
        try {
            afterwards.emplace_back([ring = ring_]() mutable { io_uring_queue_exit(&ring); });
        } catch (const std::bad_alloc &) {
            io_uring_queue_exit(&ring_);
        }
        buffers_.Reset();
        open_ = false;
    }
}

// Only who gives memory back has the lock otherwise, for a moment, and he waits for no other ring's. So a thread may have
// several of them at a time, in any order, as it does on a striped device.
void IoUringQueue::Begin() {
    if (!begun_) {
        while (!mutex_.try_lock()) {
            std::this_thread::yield();
        }
        begun_ = true;
    }
}

// A range that is removed from now on finds the lock free; one that was removed before has set the flag.
void IoUringQueue::EndIfDrained() noexcept {
    if (!waiting_.empty() || in_kernel_ > 0 || !begun_) {
        return;
    }
    begun_ = false;
    mutex_.unlock();
    while (must_drop_.exchange(false)) {
        const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock()) {
            must_drop_ = true;
            return; // whoever removes a range sees to it
        }
        try {
            if (open_ && !buffers_.Empty()) {
                buffers_.DropRemoved(ring_);
            }
        } catch (const std::bad_alloc &) {
            buffers_.DropAll(ring_);
        }
    }
}

int IoUringQueue::FindBuffer(const Command &command) {
    const RingBuffers::Use use = BufferUse();
    if (use == RingBuffers::Use::NOTHING) {
        return RingBuffers::NONE;
    }
    if (!watches_) {
        try {
            StableMemory::Watch(watcher_);
        } catch (const std::bad_alloc &) {
            return RingBuffers::NONE;
        }
        watches_ = true;
    }
    return buffers_.Find(ring_, use, command.data, command.length);
}

void IoUringQueue::Close() {
    RAWDUCK_INVARIANT(in_kernel_ == 0, "a ring is closed when nothing of it is in flight");
    if (open_ && broken_ == 0 && (buffers_.Empty() || kind_.IsForThisThread())) {
        buffers_.DropAll(ring_);
        GiveIdleRing(kind_, ring_);
    } else if (open_) {
        io_uring_queue_exit(&ring_);
        buffers_.Reset();
    }
    open_ = false;
}

bool IoUringQueue::Submit(Command &command) {
    if (waiting_.size() + in_kernel_ >= depth_) {
        return false;
    }
    if (entries_) {
        LimitRingWorkersOfThisThread();
    }
    Begin();
    const ScopeExit end([this] { EndIfDrained(); }); // where no ring can be made
    if (!open_ || broken_ != 0) {
        if (in_kernel_ > 0 || !waiting_.empty()) {
            return false; // what is left must be reaped first
        }
        Close();
        Open();
    }
    if (entries_) {
        if (!entries_->NextIsFree()) {
            return false; // until the command that has it completes
        }
        command.ring_entry = entries_->Take();
    }
    waiting_.push_back(&command);
    return true;
}

bool IoUringQueue::FinishAlone(Command **completed) {
    const bool alone = waiting_.size() == 1 && prepared_ == 0 && in_kernel_ == 0 && broken_ == 0;
    if (!alone || !RunAlone(*waiting_.front())) {
        return false;
    }
    completed[0] = waiting_.front();
    waiting_.clear();
    return true;
}

// The ring has an entry for each command that the queue takes.
void IoUringQueue::PrepareWaiting() {
    while (prepared_ < waiting_.size()) {
        io_uring_sqe *entry = io_uring_get_sqe(&ring_);
        RAWDUCK_INVARIANT(entry, "the ring has an entry for each command that waits");
        const Command &command = *waiting_[prepared_];
        const int buffer = FindBuffer(command);
        Prepare(*entry, command, buffer);
        entry->user_data =
            reinterpret_cast<uint64_t>(&command) | (buffer == RingBuffers::NONE ? 0 : REGISTERED);
        prepared_++;
    }
}

uint32_t IoUringQueue::Reap(Command **completed, uint32_t max, bool wait) {
    const uint32_t count = ReapLocked(completed, max, wait);
    EndIfDrained();
    return count;
}

uint32_t IoUringQueue::ReapLocked(Command **completed, uint32_t max, bool wait) {
    if (wait && FinishAlone(completed)) {
        return 1;
    }
    for (;;) {
        uint32_t count = Collect(completed, max);
        if (broken_ != 0 && in_kernel_ == 0) {
            return count + FailWaiting(completed + count, max - count);
        }
        const bool nothing_to_send = waiting_.empty() || broken_ != 0;
        const bool sleep = wait && count == 0;
        if (nothing_to_send && !sleep) {
            return count;
        }
        // One system call hands over all that is waiting and, when there is nothing to hand out, sleeps.
        Enter(sleep);
        if (!sleep) {
            return count + Collect(completed + count, max - count);
        }
    }
}

void IoUringQueue::Enter(bool wait) {
    if (broken_ != 0) {
        WaitInKernel();
        return;
    }
    PrepareWaiting();
    int result = io_uring_submit_and_wait(&ring_, wait ? 1 : 0);
    if (result > 0) {
        RAWDUCK_INVARIANT(static_cast<size_t>(result) <= prepared_ && prepared_ <= waiting_.size(),
                          "the kernel takes what was prepared");
        in_kernel_ += static_cast<uint32_t>(result);
        prepared_ -= static_cast<size_t>(result);
        waiting_.erase(waiting_.begin(), waiting_.begin() + result);
        stalls_ = 0;
    } else if (result < 0) {
        HandleEnterError(-result, wait);
    } else if (!waiting_.empty()) {
        HandleEnterError(EAGAIN, wait);
    }
}

void IoUringQueue::HandleEnterError(int error_number, bool wait) {
    if (error_number == EINTR) {
        return; // by a signal; the caller's loop asks again
    }
    const bool transient = error_number == EAGAIN || error_number == EBUSY || error_number == ENOMEM;
    if (transient && in_kernel_ > 0) {
        if (wait) {
            WaitInKernel(); // a completion frees what the kernel is short of
        }
        return;
    }
    if (transient && ++stalls_ < MAX_STALLS) {
        const timespec pause = {0, STALL_PAUSE_NS};
        nanosleep(&pause, nullptr);
        return;
    }
    if (waiting_.empty()) {
        WaitInKernel();
        return;
    }
    stalls_ = 0;
    broken_ = error_number;
}

//! Sleeps until one of the commands in the kernel completes, submitting none.
void IoUringQueue::WaitInKernel() {
    io_uring_cqe *cqe = nullptr;
    int result = io_uring_wait_cqe(&ring_, &cqe);
    if (result == 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY) {
        return;
    }
    // The kernel will write to memory that the caller takes back when this returns, and there is no way left
    // to learn when. Corrupting it silently would be worse than stopping here.
    std::fprintf(stderr, "rawduck: %s: cannot wait for %u commands in flight: %s\n", target_name_.c_str(),
                 in_kernel_, ErrnoText(-result).c_str());
    std::abort();
}

uint32_t IoUringQueue::Collect(Command **completed, uint32_t max) {
    uint32_t total = 0;
    io_uring_cqe *entries[64];
    while (total < max && in_kernel_ > 0) {
        unsigned count = io_uring_peek_batch_cqe(&ring_, entries, std::min<unsigned>(max - total, 64));
        if (count == 0) {
            break;
        }
        RAWDUCK_INVARIANT(count <= in_kernel_, "what completes was in flight");
        for (unsigned i = 0; i < count; i++) {
            const uint64_t data = entries[i]->user_data;
            auto *command = reinterpret_cast<Command *>(data & ~REGISTERED);
            Complete(*command, *entries[i], (data & REGISTERED) != 0);
            if (entries_) {
                entries_->Give(command->ring_entry);
            }
            completed[total++] = command;
        }
        io_uring_cq_advance(&ring_, count);
        in_kernel_ -= count;
    }
    return total;
}

//! Hands out commands that never reached the kernel.
uint32_t IoUringQueue::FailWaiting(Command **completed, uint32_t max) {
    const size_t count = std::min<size_t>(max, waiting_.size());
    for (size_t i = 0; i < count; i++) {
        waiting_[i]->result = -broken_;
        completed[i] = waiting_[i];
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    prepared_ -= std::min(prepared_, count);
    return static_cast<uint32_t>(count);
}

} // namespace rawduck
