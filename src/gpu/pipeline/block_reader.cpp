#include "gpu/pipeline/block_reader.hpp"

#include <algorithm>
#include <utility>

namespace rawduck::gpu {

BlockReader::BlockReader(BlockSource &source, std::shared_ptr<Device> device)
    : source_(source), device_(std::move(device)) {}

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

void BlockReader::Add(std::set<uint64_t> window) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        wanted_.push_back(std::move(window));
    }
    if (!thread_.joinable()) {
        thread_ = std::thread([this] { Run(); });
    }
    changed_.notify_all();
}

BlockWindow BlockReader::Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || !ready_.empty(); });
    if (ready_.empty()) {
        std::rethrow_exception(failure_);
    }
    BlockWindow window = std::move(ready_.front());
    ready_.pop_front();
    ready_bytes_ -= window.memory.Size();
    lock.unlock();
    changed_.notify_all();
    return window;
}

bool BlockReader::IsReady() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_ || !ready_.empty();
}

std::optional<std::set<uint64_t>> BlockReader::AwaitWindow() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!CanGoOn()) {
        // How long it takes is up to the caller; nothing may be held meanwhile.
        lock.unlock();
        Release();
        lock.lock();
        changed_.wait(lock, [&] { return CanGoOn(); });
    }
    if (is_stopped_) {
        return std::nullopt;
    }
    std::set<uint64_t> window = std::move(wanted_.front());
    wanted_.pop_front();
    return window;
}

void BlockReader::Run() {
    for (bool goes_on = true; goes_on;) {
        std::exception_ptr failure;
        BlockWindow window;
        try {
            std::optional<std::set<uint64_t>> wanted = AwaitWindow();
            if (!wanted) {
                break;
            }
            window = Read(*wanted);
            before_ = std::move(*wanted);
        } catch (...) {
            failure = std::current_exception();
        }
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            failure_ = failure;
            if (!failure) {
                ready_bytes_ += window.memory.Size();
                ready_.push_back(std::move(window));
            }
        }
        changed_.notify_all();
        goes_on = !failure;
    }
    try {
        Release();
    } catch (const std::exception &) {
        // The device has failed, and nothing is held any more; what it is told to do next says so.
    }
}

BlockWindow BlockReader::Read(const std::set<uint64_t> &wanted) {
    BlockWindow window;
    if (wanted.empty()) {
        return window;
    }
    std::vector<uint64_t> missing;
    for (const uint64_t block : wanted) {
        (before_.count(block) > 0 ? window.kept : missing).push_back(block);
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
    const bool is_pinned = !missing.empty() && CopyPinned(missing, window);
    if (!is_pinned) {
        Fill(missing, window);
    }
    window.copied = device_->CopiesSoFar(); // the allocation, if nothing else
    if (is_pinned) {
        Keep(window.copied);
    }
    return window;
}

std::vector<BlockRange> BlockReader::RangesOf(const std::vector<uint64_t> &blocks, size_t first, size_t count,
                                              uint8_t *to) const {
    std::vector<BlockRange> ranges;
    for (size_t i = 0; i < count; i++) {
        const uint64_t block = blocks[first + i];
        if (!ranges.empty() && block == ranges.back().first + ranges.back().count) {
            ranges.back().count++;
        } else {
            ranges.push_back({block, 1, to + i * source_.BlockBytes()});
        }
    }
    return ranges;
}

bool BlockReader::CopyPinned(const std::vector<uint64_t> &wanted, BlockWindow &window) {
    if (held_windows_ == WINDOWS_HELD) {
        Release();
    }
    uint8_t *to = window.memory.Data();
    const auto found = source_.Pin(RangesOf(wanted, 0, wanted.size(), to), device_->Pinner(), hold_);
    if (found.empty()) {
        Release(); // a thread that holds the file must not read it
        return false;
    }
    std::vector<CopiedPiece> pieces;
    for (const auto &[data, length] : found) {
        pieces.push_back({reinterpret_cast<const uint8_t *>(data), to, length});
        to += length;
    }
    device_->CopyInPinned(pieces);
    window.bytes_read += wanted.size() * source_.BlockBytes();
    return true;
}

void BlockReader::Keep(std::shared_ptr<Event> copied) {
    // The device always has the next copies when it has done those before, and not more.
    held_windows_++;
    copying_.push_back(std::move(copied));
    if (copying_.size() > 1) {
        copying_.front()->Wait();
        copying_.pop_front();
    }
}

void BlockReader::Release() {
    const auto copying = std::move(copying_);
    copying_.clear();
    held_windows_ = 0;
    const auto hold = std::move(hold_);
    for (const auto &copied : copying) {
        copied->Wait();
    }
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
    source_.Read(RangesOf(wanted, first, count, slot.Data()));
    device_->CopyInSlot(device_to, slot.Data(), count * block_bytes);
    window.bytes_read += count * block_bytes;
    return count;
}

} // namespace rawduck::gpu
