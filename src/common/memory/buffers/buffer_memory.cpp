#include "common/memory/buffers/buffer_memory.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <fstream>
#include <new>
#include <pthread.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace rawduck {

namespace {

constexpr std::chrono::seconds GIVE_BACK_INTERVAL(1);

//! Address space for as many blocks as the machine has memory. Pages are taken when blocks are allocated.
uint64_t PhysicalBytes() {
    const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return std::max(AlignUp(pages * page_bytes, PageBacking::CHUNK_BYTES), BufferMemory::ADDRESS_MIN);
}

//! With this setting the kernel sets aside memory for all that is reserved.
bool KernelCommitsWhatIsReserved() {
    std::ifstream file("/proc/sys/vm/overcommit_memory");
    char mode = '0';
    file >> mode;
    return mode == '2';
}

//! Whether the rest of the program still has as much of what is limited as the machine has memory.
bool Leaves(__rlimit_resource limited, uint64_t bytes) {
    rlimit limit{};
    return getrlimit(limited, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur / 2);
}

//! Addresses, and data: memory that may be written to counts as that when it is reserved.
bool LeavesAddresses(uint64_t bytes) {
    return Leaves(RLIMIT_AS, bytes) && Leaves(RLIMIT_DATA, bytes);
}

} // namespace

BufferMemory::BufferMemory(uint64_t address_bytes)
    : address_bytes_(address_bytes), region_(address_bytes, HugeMemory::Pages::AS_ADVISED_LATER),
      staging_(region_.Data(), backing_), blocks_(region_.Data() + StagingArena::ARENA_BYTES,
                                                  address_bytes - StagingArena::ARENA_BYTES, backing_) {}

std::unique_ptr<BufferMemory> BufferMemory::Reserve() {
    const uint64_t bytes = PhysicalBytes();
    if (!LeavesAddresses(bytes) || KernelCommitsWhatIsReserved()) {
        return nullptr;
    }
    try {
        return std::make_unique<BufferMemory>(bytes);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

BufferMemory *BufferMemory::OfProcess() {
    // Never destroyed: DuckDB may free memory after the destructors of static objects.
    static BufferMemory *const memory = [] {
        BufferMemory *const made = Reserve().release();
        if (made) {
            made->gives_back_ = false;
        }
        return made;
    }();
    // Without the handlers a child could find a lock taken for ever.
    static const bool handles_forks = pthread_atfork(LockForFork, UnlockInParent, UnlockInChild) == 0;
    return handles_forks ? memory : nullptr;
}

char *BufferMemory::Allocate(uint64_t bytes) {
    if (bytes == BlockArena::BLOCK_BYTES) {
        return blocks_.Allocate();
    }
    if (bytes % StagingArena::UNIT_BYTES == 0 && bytes > 0 && bytes <= StagingArena::LENGTH_MAX) {
        return staging_.Allocate(bytes);
    }
    return nullptr;
}

void BufferMemory::Free(char *memory) noexcept {
    if (IsStaging(memory)) {
        staging_.Free(memory);
    } else {
        blocks_.Free(memory);
    }
    if (!gives_back_.load(std::memory_order_relaxed)) {
        StartGivingBack();
    }
}

void BufferMemory::GiveBackUnused() noexcept {
    staging_.GiveBackUnused();
    blocks_.GiveBackUnused();
}

bool BufferMemory::HasMoreToGiveBack() const {
    return staging_.HasMoreToGiveBack() || blocks_.Count().kept_bytes > 0;
}

BufferMemory::Counts BufferMemory::Count() const {
    return {blocks_.Count(), staging_.Count(), backing_.Count(), address_bytes_};
}

void BufferMemory::StartGivingBack() noexcept {
    if (gives_back_.exchange(true)) {
        return;
    }
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread([this] { KeepGivingBack(); }).detach();
    } catch (const std::exception &) {
        // The system has no thread to give, or no memory for it. What is kept is bounded, and who frees memory next tries again.
        gives_back_ = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void BufferMemory::KeepUpTo(uint64_t bytes) noexcept {
    staging_.KeepUpTo(bytes);
    blocks_.KeepUpTo(bytes);
}

uint64_t BufferMemory::AllowedBytes() const noexcept {
    const Available available = available_;
    try {
        const uint64_t kept = blocks_.Count().kept_bytes + staging_.Count().kept_bytes;
        return available ? std::min((available() + kept) / KEPT_SHARE, KEPT_MAX) : 0;
    } catch (const std::exception &) { // no memory to ask with
        return 0;
    }
}

void BufferMemory::KeepGivingBack() noexcept {
    do {
        // At least once, also where nothing is kept: or a thread would be started for each block that is freed.
        do {
            KeepUpTo(AllowedBytes());
            std::this_thread::sleep_for(GIVE_BACK_INTERVAL);
            GiveBackUnused();
        } while (HasMoreToGiveBack());
        KeepUpTo(0); // by the time that something is freed again, this may be much too much
        gives_back_ = false;
        // Who freed memory until then saw that the thread ran.
    } while (HasMoreToGiveBack() && !gives_back_.exchange(true));
}

void BufferMemory::LockForFork() {
    if (BufferMemory *const memory = OfProcess()) {
        memory->staging_.Mutex().lock();
        memory->blocks_.Mutex().lock();
        memory->backing_.Mutex().lock();
    }
}

void BufferMemory::UnlockInParent() {
    if (BufferMemory *const memory = OfProcess()) {
        memory->backing_.Mutex().unlock();
        memory->blocks_.Mutex().unlock();
        memory->staging_.Mutex().unlock();
    }
}

void BufferMemory::UnlockInChild() {
    if (BufferMemory *const memory = OfProcess()) {
        memory->gives_back_ = true; // the thread is not here, and a child of many threads should start none
        memory->KeepUpTo(0);
        memory->staging_.DropKeptInChild();
        memory->blocks_.DropKeptInChild();
    }
    UnlockInParent();
}

} // namespace rawduck
