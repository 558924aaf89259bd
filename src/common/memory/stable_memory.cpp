#include "common/memory/stable_memory.hpp"

#include "common/process/fork_generation.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

namespace rawduck {
namespace {

struct List {
    explicit List(uint64_t generation) : generation(generation) {}
    const uint64_t generation;
    std::mutex
        mutex; //!< guards what follows; watchers are called under it, which may take their own for a moment
    std::vector<StableMemory::Range> ranges; //!< by address
    std::vector<StableMemory::Watcher *> watchers;

    void Tell(char *begin, uint64_t bytes, uint64_t number, StableMemory::Afterwards &afterwards) noexcept {
        for (StableMemory::Watcher *const watcher : watchers) {
            watcher->PagesGo(begin, bytes, number, afterwards);
        }
    }
};

//! One for all lists, so that a version tells which process's list it is of.
std::atomic<uint64_t> last_version{0};

//! Never destroyed: memory is given back until the process ends. A child of a fork begins anew: the mutex may have
//! been copied locked.
List &CurrentList() {
    static std::atomic<List *> current{nullptr};
    List *list = current.load();
    while (!list || list->generation != ForkGeneration()) {
        auto *const made = new List(ForkGeneration());
        if (current.compare_exchange_strong(list, made)) {
            last_version.fetch_add(1);
            return *made;
        }
        delete made;
    }
    return *list;
}

void Do(const StableMemory::Afterwards &afterwards) noexcept {
    for (const std::function<void()> &put_off : afterwards) {
        put_off();
    }
}

} // namespace

void StableMemory::Add(const char *begin, uint64_t bytes, HugeMemory::Pages pages) noexcept {
    static std::atomic<uint64_t> last_number{0};
    const auto address = reinterpret_cast<uint64_t>(begin);
    try {
        List &list = CurrentList();
        std::lock_guard<std::mutex> guard(list.mutex);
        const auto next = std::find_if(list.ranges.begin(), list.ranges.end(),
                                       [&](const Range &range) { return range.begin > address; });
        list.ranges.insert(next, {address, address + bytes, ++last_number, pages});
        last_version.fetch_add(1);
    } catch (const std::bad_alloc &) {
        // Commands to and from it carry its address.
    }
}

void StableMemory::Remove(const char *begin) noexcept {
    const auto address = reinterpret_cast<uint64_t>(begin);
    Afterwards afterwards;
    try {
        List &list = CurrentList();
        std::lock_guard<std::mutex> guard(list.mutex);
        const auto found = std::find_if(list.ranges.begin(), list.ranges.end(),
                                        [&](const Range &range) { return range.begin == address; });
        if (found == list.ranges.end()) {
            return;
        }
        const Range range = *found;
        list.ranges.erase(found);
        last_version.fetch_add(1);
        list.Tell(reinterpret_cast<char *>(range.begin), range.end - range.begin, range.number, afterwards);
    } catch (const std::bad_alloc &) {
        // There is no list, so nothing is listed.
    }
    Do(afterwards);
}

void StableMemory::TellPagesGo(char *begin, uint64_t bytes) noexcept {
    Afterwards afterwards;
    try {
        List &list = CurrentList();
        std::lock_guard<std::mutex> guard(list.mutex);
        list.Tell(begin, bytes, 0, afterwards);
    } catch (const std::bad_alloc &) {
        // There is no list, so nobody watches.
    }
    Do(afterwards);
}

uint64_t StableMemory::Version() noexcept {
    return last_version.load(std::memory_order_acquire);
}

uint64_t StableMemory::Copy(std::vector<Range> &ranges) {
    List &list = CurrentList();
    std::lock_guard<std::mutex> guard(list.mutex);
    ranges = list.ranges;
    return last_version.load();
}

void StableMemory::Watch(Watcher &watcher) {
    List &list = CurrentList();
    std::lock_guard<std::mutex> guard(list.mutex);
    list.watchers.push_back(&watcher);
}

void StableMemory::Unwatch(Watcher &watcher) noexcept {
    try {
        List &list = CurrentList();
        std::lock_guard<std::mutex> guard(list.mutex);
        list.watchers.erase(std::remove(list.watchers.begin(), list.watchers.end(), &watcher),
                            list.watchers.end());
    } catch (const std::bad_alloc &) {
        // There is no list, so nobody watches.
    }
}

} // namespace rawduck
