#include "io/thread_queues.hpp"

#include "device/fork_generation.hpp"

#include <algorithm>

namespace rawduck {
namespace {

constexpr uint64_t BOUNCE_BUDGET_BYTES = 64 * MIB;
//! Larger commands gain nothing when each byte is copied anyway, and smaller ones let copying overlap
//! transfers.
constexpr uint64_t MAX_BOUNCE_CHUNK_BYTES = 256 * KIB;
constexpr uint32_t MAX_BOUNCE_CHUNKS = 16;

uint64_t NextId() {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

uint64_t ChunkBytes(const Capabilities &caps) {
    return std::min<uint64_t>(caps.max_transfer_bytes, MAX_BOUNCE_CHUNK_BYTES);
}

} // namespace

//! The queues of one thread, over all targets. Its destructor runs when the thread exits.
struct ThreadCache {
    struct Entry {
        uint64_t id;
        uint64_t fork_generation;
        std::weak_ptr<ThreadQueues> owner;
        ThreadQueue *queue; //!< valid while the owner is open, which a running call implies
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

    ThreadQueue *Find(uint64_t id) const {
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
thread_local ThreadCache thread_cache;
} // namespace

ThreadQueue::ThreadQueue(Device &device, uint32_t wanted_depth, BounceBudget &budget)
    : queue(device.CreateQueue(std::max(1u, std::min(wanted_depth, device.Caps().max_queue_depth)))),
      bounce(ChunkBytes(device.Caps()), device.Caps().memory_alignment,
             std::min(queue->Depth(), MAX_BOUNCE_CHUNKS), budget),
      slots(queue->Depth()) {
    idle.reserve(slots.size());
    resubmit.reserve(slots.size());
    reaped.reserve(slots.size());
    for (auto &slot : slots) {
        idle.push_back(&slot);
    }
}

ThreadQueues::ThreadQueues(std::unique_ptr<Device> device, uint32_t depth)
    : id_(NextId()), depth_(depth), budget_(BOUNCE_BUDGET_BYTES), device_(std::move(device)) {}

ThreadQueue &ThreadQueues::Mine() {
    if (ThreadQueue *queue = thread_cache.Find(id_)) {
        return *queue;
    }
    thread_cache.Purge();
    auto created = std::make_unique<ThreadQueue>(*device_, depth_, budget_);
    ThreadQueue *queue = created.get();
    thread_cache.entries.reserve(thread_cache.entries.size() + 1);
    {
        std::lock_guard<std::mutex> guard(mutex_);
        queues_.push_back(std::move(created));
    }
    thread_cache.entries.push_back({id_, ForkGeneration(), weak_from_this(), queue});
    return *queue;
}

void ThreadQueues::DiscardMine() {
    ThreadQueue *queue = thread_cache.Find(id_);
    auto &entries = thread_cache.entries;
    auto mine = [this](const ThreadCache::Entry &entry) { return entry.id == id_; };
    entries.erase(std::remove_if(entries.begin(), entries.end(), mine), entries.end());
    Release(queue);
}

void ThreadQueues::Release(ThreadQueue *queue) {
    std::lock_guard<std::mutex> guard(mutex_);
    queues_.remove_if([queue](const std::unique_ptr<ThreadQueue> &owned) { return owned.get() == queue; });
}

void ThreadQueues::Close() {
    std::lock_guard<std::mutex> guard(mutex_);
    queues_.clear();
    device_.reset();
}

} // namespace rawduck
