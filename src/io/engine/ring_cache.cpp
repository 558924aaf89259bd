#include "io/engine/ring_cache.hpp"

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

} // namespace

uint64_t RingThread(unsigned setup_flags) {
    static std::atomic<uint64_t> last{0};
    thread_local const uint64_t thread = ++last;
    return (setup_flags & IORING_SETUP_SINGLE_ISSUER) != 0 ? thread : 0;
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
        cache.idle.push_back(surplus);
        if (cache.idle.size() <= IdleMax()) {
            return;
        }
        surplus = cache.idle.front();
        cache.idle.pop_front();
    } catch (const std::bad_alloc &) {
        // Without memory to remember it, this one is closed.
    }
    io_uring_queue_exit(&surplus.ring);
}

bool CloseIdleRings() {
    RingCache &cache = Cache();
    std::deque<IdleRing> closing;
    {
        std::lock_guard<std::mutex> guard(cache.mutex);
        closing.swap(cache.idle);
    }
    for (IdleRing &idle : closing) {
        io_uring_queue_exit(&idle.ring);
    }
    return !closing.empty();
}

} // namespace rawduck
