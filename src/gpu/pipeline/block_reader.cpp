#include "gpu/pipeline/block_reader.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <utility>

namespace rawduck::gpu {

BlockReader::BlockReader(std::vector<std::set<uint64_t>> windows, BlockSource &source,
                         std::shared_ptr<Device> device)
    : windows_(std::move(windows)), source_(source), device_(std::move(device)) {}

BlockReader::~BlockReader() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        is_stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

BlockWindow BlockReader::Next() {
    RAWDUCK_INVARIANT(taken_ < windows_.size(), "there is a window for each Next");
    if (windows_[taken_].empty()) {
        // Nothing to read, so that nothing is waited for, and no thread is started where there is never anything.
        if (!thread_.joinable()) {
            taken_++;
            return {};
        }
    } else if (!thread_.joinable()) {
        thread_ = std::thread([this] { Run(); });
    }
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || !ready_.empty(); });
    if (ready_.empty()) {
        std::rethrow_exception(failure_);
    }
    BlockWindow window = std::move(ready_.front());
    ready_.pop_front();
    taken_++;
    lock.unlock();
    changed_.notify_all();
    return window;
}

void BlockReader::Run() {
    for (size_t index = taken_; index < windows_.size(); index++) {
        std::exception_ptr failure;
        BlockWindow window;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [&] { return IsRoom(); });
            if (is_stopped_) {
                return;
            }
        }
        try {
            window = Read(index);
        } catch (...) {
            failure = std::current_exception();
        }
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            failure_ = failure;
            if (!failure) {
                ready_.push_back(std::move(window));
            }
        }
        changed_.notify_all();
        if (failure) {
            return;
        }
    }
}

BlockWindow BlockReader::Read(size_t index) {
    BlockWindow window;
    const std::set<uint64_t> &wanted = windows_[index];
    if (wanted.empty()) {
        return window;
    }
    std::vector<uint64_t> missing;
    for (const uint64_t block : wanted) {
        const bool is_kept = index > 0 && windows_[index - 1].count(block) > 0;
        (is_kept ? window.kept : missing).push_back(block);
    }
    const uint64_t block_bytes = source_.BlockBytes();
    window.memory = device_->Allocate(wanted.size() * block_bytes, Purpose::COPIED);
    uint8_t *to = window.memory.Data();
    for (const auto *blocks : {&missing, &window.kept}) {
        for (const uint64_t block : *blocks) {
            window.places[block] = to;
            to += block_bytes;
        }
    }
    Fill(missing, window);
    window.copied = device_->CopiesSoFar();
    return window;
}

void BlockReader::Fill(const std::vector<uint64_t> &wanted, BlockWindow &window) {
    uint8_t *to = window.memory.Data();
    for (size_t first = 0; first < wanted.size();) {
        const size_t count = FillSlot(wanted, first, to, window);
        first += count;
        to += count * source_.BlockBytes();
    }
}

size_t BlockReader::FillSlot(const std::vector<uint64_t> &wanted, size_t first, uint8_t *device_to,
                             BlockWindow &window) {
    const uint64_t block_bytes = source_.BlockBytes();
    const size_t count = std::min<size_t>(wanted.size() - first, Device::SLOT_BYTES / block_bytes);
    const Memory slot = device_->TakeSlot();
    std::vector<BlockRange> ranges;
    for (size_t i = 0; i < count; i++) {
        const uint64_t block = wanted[first + i];
        if (!ranges.empty() && block == ranges.back().first + ranges.back().count) {
            ranges.back().count++;
        } else {
            ranges.push_back({block, 1, slot.Data() + i * block_bytes});
        }
    }
    source_.Read(ranges);
    device_->CopyInSlot(device_to, slot.Data(), count * block_bytes);
    window.bytes_read += count * block_bytes;
    return count;
}

} // namespace rawduck::gpu
