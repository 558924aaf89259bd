#include "volume/file/deallocator.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"
#include "common/scope_exit.hpp"
#include "common/text/name_table.hpp"

#include <algorithm>
#include <new>
#include <system_error>

namespace rawduck {
namespace {

constexpr NamedValue<DeallocateMode> MODE_NAMES[] = {
    {DeallocateMode::AUTO, "auto"}, {DeallocateMode::ON, "on"}, {DeallocateMode::OFF, "off"}};

//! Devices map their media in pieces of about this size, and cannot give up less.
constexpr uint64_t UNITS_MIN = 16 * KIB / ALLOCATION_UNIT_BYTES;
//! What is claimed at a time.
constexpr uint64_t PIECE_UNITS_MAX = 64 * MIB / ALLOCATION_UNIT_BYTES;
constexpr size_t BATCH_PIECES_MAX = 64;

//! In order, neighbours joined, and nothing longer than a piece.
std::vector<Extent> SplitIntoPieces(std::vector<Extent> extents) {
    std::sort(extents.begin(), extents.end(),
              [](const Extent &a, const Extent &b) { return a.start < b.start; });
    std::vector<Extent> joined;
    for (const Extent &extent : extents) {
        // What was freed, allocated and freed again is here twice.
        const uint64_t end = joined.empty() ? 0 : joined.back().start + joined.back().units;
        if (!joined.empty() && extent.start <= end) {
            joined.back().units = std::max(end, extent.start + extent.units) - joined.back().start;
        } else {
            joined.push_back(extent);
        }
    }
    std::vector<Extent> pieces;
    for (const Extent &extent : joined) {
        for (uint64_t done = 0; done < extent.units; done += PIECE_UNITS_MAX) {
            pieces.push_back({0, extent.start + done, std::min(PIECE_UNITS_MAX, extent.units - done)});
        }
    }
    return pieces;
}

} // namespace

DeallocateMode ParseDeallocateMode(const std::string &text) {
    if (const auto mode = FindValue(MODE_NAMES, text)) {
        return *mode;
    }
    throw Error(ErrorCode::INVALID, "nvme_deallocate: '" + text + "' is neither auto, on nor off");
}

const char *DeallocateModeName(DeallocateMode mode) {
    return NameOf(MODE_NAMES, mode);
}

Deallocator::Deallocator(BlockIo &io, Space &space, MetadataLog &log, std::string obstacle,
                         std::chrono::milliseconds delay)
    : io_(io), space_(space), log_(log), delay_(delay), fork_generation_(ForkGeneration()),
      obstacle_(std::move(obstacle)) {}

Deallocator::~Deallocator() {
    Stop();
}

void Deallocator::Stop() {
    if (fork_generation_ != ForkGeneration()) {
        static_cast<void>(thread_.release()); // it runs in the parent, and cannot be joined from here
        return;
    }
    {
        std::lock_guard<std::mutex> guard(mutex_);
        stop_ = true;
        pending_.clear();
    }
    wake_.notify_all();
    if (thread_) {
        thread_->join();
        thread_.reset();
    }
}

void Deallocator::Add(const std::vector<Extent> &freed) {
    if (fork_generation_ != ForkGeneration()) {
        return; // the thread, and whatever it had locked, stayed with the parent
    }
    std::lock_guard<std::mutex> guard(mutex_);
    if (!obstacle_.empty()) {
        return;
    }
    try {
        pending_.insert(pending_.end(), freed.begin(), freed.end());
        if (!thread_ && !pending_.empty()) {
            thread_ = std::make_unique<std::thread>([this] { Run(); });
        }
    } catch (const std::bad_alloc &) {
        // The device is not told of this: what is freed must not fail for the sake of a hint.
    } catch (const std::system_error &) {
        // No more threads; it is tried again the next time, and Drain tells what is pending.
    }
    wake_.notify_all();
}

void Deallocator::Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
        wake_.wait(lock, [this] { return stop_ || !pending_.empty(); });
        wake_.wait_for(lock, delay_, [this] { return stop_; });
        lock.unlock();
        SendPending();
        lock.lock();
    }
}

void Deallocator::Drain() {
    if (fork_generation_ == ForkGeneration()) {
        SendPending();
    }
}

uint64_t Deallocator::Trim(uint64_t total_units) {
    auto check = [this](ErrorCode code) {
        std::lock_guard<std::mutex> guard(mutex_);
        if (!obstacle_.empty()) {
            throw Error(code, io_.TargetName() + ": the device is not told of free space: " + obstacle_);
        }
    };
    check(ErrorCode::UNSUPPORTED);
    uint64_t told = 0;
    {
        std::lock_guard<std::mutex> sending(sending_mutex_);
        told = Send({Extent{0, 0, total_units}});
    }
    check(ErrorCode::IO);
    return told;
}

bool Deallocator::Enabled() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return obstacle_.empty() && !stop_;
}

std::string Deallocator::State() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return obstacle_.empty() ? "on" : "off: " + obstacle_;
}

bool Deallocator::Idle() const {
    if (fork_generation_ != ForkGeneration()) {
        return true;
    }
    std::lock_guard<std::mutex> guard(mutex_);
    return pending_.empty() && !sending_;
}

void Deallocator::SendPending() {
    std::lock_guard<std::mutex> sending(sending_mutex_);
    std::vector<Extent> taken;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        taken.swap(pending_);
        sending_ = true;
    }
    struct Done {
        ~Done() {
            std::lock_guard<std::mutex> guard(deallocator.mutex_);
            deallocator.sending_ = false;
        }
        Deallocator &deallocator;
    } const done{*this};
    try {
        Send(taken);
    } catch (const std::bad_alloc &) {
        // What was taken is forgotten, as a hint may be.
    }
}

uint64_t Deallocator::Send(const std::vector<Extent> &freed) {
    std::vector<Extent> claimed;
    const ScopeExit give_back([&] { space_.GiveBack(claimed); });
    uint64_t told = 0;
    for (const Extent &piece : SplitIntoPieces(freed)) {
        std::vector<Extent> found = space_.ClaimFree(piece, UNITS_MIN);
        if (claimed.empty()) {
            claimed.swap(found);
        } else {
            try {
                claimed.insert(claimed.end(), found.begin(), found.end());
            } catch (...) {
                space_.GiveBack(found);
                throw;
            }
        }
        if (claimed.size() >= BATCH_PIECES_MAX) {
            told += SendClaimed(claimed);
            space_.GiveBack(claimed);
            claimed.clear();
        }
    }
    return told + SendClaimed(claimed);
}

uint64_t Deallocator::SendClaimed(const std::vector<Extent> &claimed) {
    std::vector<DeviceRange> ranges;
    uint64_t bytes = 0;
    for (const Extent &extent : claimed) {
        ranges.push_back({extent.start * ALLOCATION_UNIT_BYTES, extent.units * ALLOCATION_UNIT_BYTES});
        bytes += ranges.back().length;
    }
    return Deallocate(ranges) ? bytes : 0;
}

bool Deallocator::Deallocate(const std::vector<DeviceRange> &ranges) {
    if (ranges.empty() || !Enabled() || !log_.Poisoned().empty()) {
        return false;
    }
    try {
        for (const DeviceRange &range : ranges) {
            log_.BeforeOverwrite(range.device_offset, range.length);
        }
        return io_.Deallocate(ranges);
    } catch (const std::exception &error) {
        std::lock_guard<std::mutex> guard(mutex_);
        obstacle_ = std::string("it failed, and is not tried again: ") + error.what();
        return false;
    }
}

} // namespace rawduck
