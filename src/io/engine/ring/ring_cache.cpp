#include "io/engine/ring/ring_cache.hpp"

#include "common/process/fork_generation.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <new>
#include <sys/resource.h>

#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif

namespace rawduck {

struct RingThread {
    RingThread(uint64_t number, bool ended) : number(number), ended(ended) {}
    const uint64_t number; //!< never the same for two threads
    std::atomic<bool>
        ended; //!< set before its idle rings are closed, so that whoever gives one back later sees it
};

namespace {

constexpr size_t IDLE_MAX = 32;
constexpr rlim_t DESCRIPTORS_PER_IDLE = 32;

size_t IdleMax() {
    rlimit limit{};
    return getrlimit(RLIMIT_NOFILE, &limit) == 0
               ? std::min<size_t>(IDLE_MAX, limit.rlim_cur / DESCRIPTORS_PER_IDLE)
               : 0;
}

struct IdleRing {
    RingKind kind;
    io_uring ring;
};

bool Fits(const IdleRing &idle, const RingKind &kind) {
    return idle.kind.entries == kind.entries && idle.kind.setup_flags == kind.setup_flags &&
           idle.kind.thread == kind.thread;
}

struct RingCache {
    explicit RingCache(uint64_t generation) : generation(generation) {}
    const uint64_t generation;
    std::mutex mutex;          //!< guards idle; no other lock is taken under it
    std::deque<IdleRing> idle; //!< the one that is idle for longest first
};

//! Never destroyed: files are closed until the process ends. A child of a fork begins anew: it must not use its
//! parent's rings, and the mutex may have been copied locked.
RingCache &Cache() {
    static std::atomic<RingCache *> current{nullptr};
    RingCache *cache = current.load();
    while (!cache || cache->generation != ForkGeneration()) {
        auto *const made = new RingCache(ForkGeneration());
        if (current.compare_exchange_strong(cache, made)) {
            return *made;
        }
        delete made;
    }
    return *cache;
}

//! Closes those that are idle and chosen. Returns whether there was one. Throws std::bad_alloc.
template <class CHOOSE> bool CloseIdle(const CHOOSE &chosen) {
    RingCache &cache = Cache();
    std::deque<IdleRing> closing;
    {
        std::lock_guard<std::mutex> guard(cache.mutex);
        const auto kept_end = std::stable_partition(cache.idle.begin(), cache.idle.end(),
                                                    [&](const IdleRing &idle) { return !chosen(idle); });
        closing.assign(kept_end, cache.idle.end());
        cache.idle.erase(kept_end, cache.idle.end());
    }
    for (IdleRing &idle : closing) {
        io_uring_queue_exit(&idle.ring);
    }
    return !closing.empty();
}

uint64_t ThreadNumber() noexcept {
    static std::atomic<uint64_t> last{0};
    thread_local const uint64_t number = ++last;
    return number;
}

//! Has no destructor, so that it tells this also while the others of the thread run.
thread_local bool thread_has_ended = false;

//! Its destructor runs when the thread ends.
struct EndingThread {
    ~EndingThread() {
        thread_has_ended = true;
        thread->ended = true;
        try {
            CloseIdle([this](const IdleRing &idle) { return idle.kind.thread == thread; });
        } catch (const std::bad_alloc &) {
            // They are closed when there are too many.
        }
    }
    const std::shared_ptr<RingThread> thread = std::make_shared<RingThread>(ThreadNumber(), false);
};

std::shared_ptr<RingThread> CurrentThread() {
    if (thread_has_ended) {
        return std::make_shared<RingThread>(ThreadNumber(), true);
    }
    thread_local const EndingThread current;
    return current.thread;
}

} // namespace

RingKind MakeRingKind(uint32_t entries, unsigned setup_flags) {
    return {entries, setup_flags,
            (setup_flags & IORING_SETUP_SINGLE_ISSUER) != 0 ? CurrentThread() : nullptr};
}

bool RingKind::IsForThisThread() const noexcept {
    return !thread || thread->number == ThreadNumber();
}

bool TakeIdleRing(const RingKind &kind, io_uring &ring) {
    RingCache &cache = Cache();
    std::lock_guard<std::mutex> guard(cache.mutex);
    // The one that was used last: what it needs is in the processor's caches.
    const auto found = std::find_if(cache.idle.rbegin(), cache.idle.rend(),
                                    [&](const IdleRing &idle) { return Fits(idle, kind); });
    if (found == cache.idle.rend()) {
        return false;
    }
    ring = found->ring;
    cache.idle.erase(std::next(found).base());
    return true;
}

void GiveIdleRing(const RingKind &kind, io_uring &ring) noexcept {
    IdleRing surplus{kind, ring};
    try {
        RingCache &cache = Cache();
        std::lock_guard<std::mutex> guard(cache.mutex);
        if (!kind.thread || !kind.thread->ended) {
            cache.idle.push_back(surplus);
            if (cache.idle.size() <= IdleMax()) {
                return;
            }
            surplus = cache.idle.front();
            cache.idle.pop_front();
        }
    } catch (const std::bad_alloc &) {
        // Without memory to remember it, this one is closed.
    }
    io_uring_queue_exit(&surplus.ring);
}

bool CloseIdleRings() {
    return CloseIdle([](const IdleRing &) { return true; });
}

} // namespace rawduck
