#include "io/queue/thread_queues.hpp"

#include "common/process/fork_generation.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace rawduck {
namespace {

//! For threads without a queue of their own.
constexpr size_t SHARED_SLOTS = 16;

uint64_t NextId() {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

} // namespace

//! The queues of one thread, over all targets. Its destructor runs when the thread ends.
struct ThreadCache {
    struct Entry {
        uint64_t id;
        uint64_t fork_generation;
        std::weak_ptr<ThreadQueues> owner;
        RequestQueue *queue; //!< valid while the owner is open, which a running call implies
    };
    std::vector<Entry> entries;

    ~ThreadCache() {
        for (auto &entry : entries) {
            // In a forked child the queues are the parent's, and their mutexes may have been copied locked.
            if (entry.fork_generation != ForkGeneration()) {
                continue;
            }
            if (auto owner = entry.owner.lock()) {
                owner->Release(entry.queue);
            }
        }
    }

    RequestQueue *Find(uint64_t id) const {
        for (const auto &entry : entries) {
            if (entry.id == id) {
                return entry.queue;
            }
        }
        return nullptr;
    }

    void Purge() {
        auto stale = [](const Entry &entry) {
            return entry.fork_generation != ForkGeneration() || entry.owner.expired();
        };
        entries.erase(std::remove_if(entries.begin(), entries.end(), stale), entries.end());
    }
};

namespace {

//! A thread_local that is destroyed last may still use a target, and exit handlers do, so the cache is found
//! through a pointer, which nothing destroys: null before the first use and once the thread has begun to end.
thread_local ThreadCache *thread_cache = nullptr;
thread_local bool thread_is_ending = false;

struct ThreadCacheOwner {
    ThreadCacheOwner() { thread_cache = new ThreadCache(); }
    ~ThreadCacheOwner() {
        thread_is_ending = true;
        delete std::exchange(thread_cache, nullptr);
    }
};

//! Null when the thread is ending.
ThreadCache *CacheOfThread() {
    if (!thread_cache && !thread_is_ending) {
        thread_local const ThreadCacheOwner owner;
    }
    return thread_cache;
}

} // namespace

ThreadQueues::ThreadQueues(std::unique_ptr<Device> device, uint32_t depth)
    : QueueStrategy(std::move(device), depth), id_(NextId()), shared_(supply_, SHARED_SLOTS) {}

QueueLease ThreadQueues::Acquire() {
    ThreadCache *cache = CacheOfThread();
    if (RequestQueue *queue = cache ? OwnQueue(*cache) : nullptr) {
        return {queue, 0, {}};
    }
    return shared_.Acquire();
}

RequestQueue *ThreadQueues::OwnQueue(ThreadCache &cache) {
    if (RequestQueue *queue = cache.Find(id_)) {
        return queue;
    }
    std::unique_ptr<RequestQueue> created = supply_.TryMake(QueueUse::OWNED);
    if (!created) {
        return nullptr;
    }
    cache.Purge();
    RequestQueue *queue = created.get();
    cache.entries.reserve(cache.entries.size() + 1);
    {
        std::lock_guard<std::mutex> guard(mutex_);
        queues_.push_back(std::move(created));
    }
    cache.entries.push_back({id_, ForkGeneration(), weak_from_this(), queue});
    return queue;
}

void ThreadQueues::Discard(QueueLease &lease) {
    if (lease.lock.owns_lock()) {
        shared_.Discard(lease);
    } else {
        auto &entries = CacheOfThread()->entries;
        auto is_own = [this](const ThreadCache::Entry &entry) { return entry.id == id_; };
        entries.erase(std::remove_if(entries.begin(), entries.end(), is_own), entries.end());
        Release(lease.queue);
    }
    lease.queue = nullptr;
}

void ThreadQueues::Release(RequestQueue *queue) {
    std::lock_guard<std::mutex> guard(mutex_);
    queues_.remove_if([queue](const std::unique_ptr<RequestQueue> &owned) { return owned.get() == queue; });
}

void ThreadQueues::Close() {
    std::lock_guard<std::mutex> guard(mutex_);
    queues_.clear();
    shared_.Clear();
    device_.reset();
}

} // namespace rawduck
