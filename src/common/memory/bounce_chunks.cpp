#include "common/memory/bounce_chunks.hpp"

#include "common/invariant.hpp"
#include "common/process/fork_generation.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace rawduck {
namespace {

struct Slab {
    explicit Slab(uint64_t chunk_bytes)
        : memory(BounceChunks::SLAB_BYTES), chunk_bytes(chunk_bytes),
          chunks(BounceChunks::SLAB_BYTES / chunk_bytes) {
        for (uint64_t i = chunks; i > 0; i--) {
            idle.push_back(memory.Data() + (i - 1) * chunk_bytes);
        }
    }
    bool Unused() const { return idle.size() == chunks; }

    StableHugeMemory memory;
    const uint64_t chunk_bytes, chunks;
    std::vector<char *> idle; //!< has room for all: giving one back takes no memory
};

struct Stock {
    explicit Stock(uint64_t generation) : generation(generation) {}

    //! Moves them to `dropped`.
    void DropUnused(uint64_t kept_bytes, std::map<const char *, Slab> &dropped) {
        for (auto slab = slabs.begin(); slab != slabs.end();) {
            const bool keep = !slab->second.Unused() || kept_bytes >= BounceChunks::SLAB_BYTES;
            kept_bytes -= slab->second.Unused() && keep ? BounceChunks::SLAB_BYTES : 0;
            const auto next = std::next(slab);
            if (!keep) {
                dropped.insert(slabs.extract(slab));
            }
            slab = next;
        }
    }

    const uint64_t generation;
    std::mutex mutex; //!< guards what follows; that of StableMemory is taken under it where a slab is made
    uint64_t users = 0;
    std::map<const char *, Slab> slabs; //!< by address, so that those in use are the same ones
};

//! Never destroyed: targets may outlive static objects. A child of a fork begins anew: the mutex may have been copied
//! locked.
Stock &Current() {
    static std::atomic<Stock *> current{nullptr};
    Stock *stock = current.load();
    while (!stock || stock->generation != ForkGeneration()) {
        auto *const made = new Stock(ForkGeneration());
        if (current.compare_exchange_strong(stock, made)) {
            return *made;
        }
        delete made;
    }
    return *stock;
}

} // namespace

BounceChunks::BounceChunks() : generation_(ForkGeneration()) {
    Stock &stock = Current();
    std::lock_guard<std::mutex> guard(stock.mutex);
    stock.users++;
}

BounceChunks::~BounceChunks() {
    if (generation_ != ForkGeneration()) {
        return;
    }
    Stock &stock = Current();
    std::map<const char *, Slab> dropped; // ends when the lock is released: rings that know it are told
    std::lock_guard<std::mutex> guard(stock.mutex);
    if (--stock.users == 0) {
        stock.DropUnused(0, dropped);
    }
}

char *BounceChunks::Take(uint64_t chunk_bytes) noexcept {
    if (generation_ != ForkGeneration()) {
        return nullptr;
    }
    Stock &stock = Current();
    std::lock_guard<std::mutex> guard(stock.mutex);
    Slab *found = nullptr;
    for (auto &[begin, slab] : stock.slabs) {
        if (slab.chunk_bytes == chunk_bytes && !slab.idle.empty()) {
            found = &slab;
            break;
        }
    }
    if (!found) {
        try {
            Slab slab(chunk_bytes);
            const char *const begin = slab.memory.Data();
            found = &stock.slabs.emplace(begin, std::move(slab)).first->second;
        } catch (const std::bad_alloc &) {
            return nullptr;
        }
    }
    char *const chunk = found->idle.back();
    found->idle.pop_back();
    return chunk;
}

void BounceChunks::Give(char *chunk) noexcept {
    if (generation_ != ForkGeneration()) {
        return;
    }
    Stock &stock = Current();
    std::map<const char *, Slab> dropped; // as above
    std::lock_guard<std::mutex> guard(stock.mutex);
    const auto after = stock.slabs.upper_bound(chunk);
    RAWDUCK_INVARIANT(after != stock.slabs.begin(), "a chunk that is given back was taken");
    Slab &slab = std::prev(after)->second;
    RAWDUCK_INVARIANT(chunk < slab.memory.Data() + SLAB_BYTES && !slab.Unused(),
                      "a chunk is given back to the slab that it is of, and once");
    slab.idle.push_back(chunk);
    if (slab.Unused()) {
        stock.DropUnused(KEPT_BYTES_MAX, dropped);
    }
}

uint64_t BounceChunks::HeldBytes() {
    Stock &stock = Current();
    std::lock_guard<std::mutex> guard(stock.mutex);
    return stock.slabs.size() * SLAB_BYTES;
}

} // namespace rawduck
