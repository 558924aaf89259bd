#include "gpu/scan/open_scans.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"

#include <map>
#include <mutex>

namespace rawduck::gpu {
namespace {

struct Entry {
    ScanOptions options;
    std::shared_ptr<BatchSource> scan; //!< null: announced
    uint64_t fork_generation = ForkGeneration();
};

struct OpenScans {
    std::mutex mutex; //!< of both; never held while a scan is closed, which may end a transaction
    uint64_t next_ticket = 1;
    std::map<uint64_t, Entry> entries;
};

//! Never destroyed: handlers that run at exit close connections.
OpenScans &All() {
    static auto &all = *new OpenScans;
    return all;
}

[[noreturn]] void ThrowUnknown(uint64_t ticket) {
    throw rawduck::Error(ErrorCode::INVALID,
                         "there is no such scan (ticket " + std::to_string(ticket) +
                             "); gpu.scan and gpu.query in Python open, read and close them");
}

} // namespace

uint64_t AnnounceScan(const ScanOptions &options) {
    OpenScans &all = All();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.entries[all.next_ticket].options = options;
    return all.next_ticket++;
}

ScanOptions OptionsOf(uint64_t ticket) {
    OpenScans &all = All();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.entries.find(ticket);
    if (found == all.entries.end() || found->second.scan) {
        ThrowUnknown(ticket);
    }
    return found->second.options;
}

void SetOpened(uint64_t ticket, std::shared_ptr<BatchSource> scan) {
    OpenScans &all = All();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.entries.find(ticket);
    if (found == all.entries.end() || found->second.scan) {
        ThrowUnknown(ticket);
    }
    found->second.scan = std::move(scan);
}

std::shared_ptr<BatchSource> OpenedScan(uint64_t ticket) {
    OpenScans &all = All();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.entries.find(ticket);
    if (found == all.entries.end() || !found->second.scan) {
        ThrowUnknown(ticket);
    }
    if (found->second.fork_generation != ForkGeneration()) {
        throw rawduck::Error(ErrorCode::UNSUPPORTED, "this scan or query was opened before fork(), and its "
                                                     "threads are the parent's; open it in the process that "
                                                     "reads it");
    }
    return found->second.scan;
}

void CloseScan(uint64_t ticket) {
    OpenScans &all = All();
    std::shared_ptr<BatchSource> closed; // destroyed behind the lock
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.entries.find(ticket);
    // In a child made by fork() it stays: its threads do not exist there, and would be waited for.
    if (found != all.entries.end() && found->second.fork_generation == ForkGeneration()) {
        closed = std::move(found->second.scan);
        all.entries.erase(found);
    }
}

} // namespace rawduck::gpu
