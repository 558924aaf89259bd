#include "gpu/pipeline/window_decoder.hpp"

#include <utility>

namespace rawduck::gpu {

WindowDecoder::WindowDecoder(BlockSource &source, std::shared_ptr<Device> device)
    : block_bytes_(source.BlockBytes()), device_(std::move(device)), reader_(source, device_) {}

WindowDecoder::~WindowDecoder() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        is_stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void WindowDecoder::Add(std::vector<RowGroupJob> groups, std::set<uint64_t> blocks) {
    reader_.Add(std::move(blocks));
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        wanted_.push_back(std::move(groups));
    }
    if (!thread_.joinable()) {
        thread_ = std::thread([this] { Run(); });
    }
    changed_.notify_all();
}

DecodedWindow WindowDecoder::Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || !ready_.empty(); });
    if (ready_.empty()) {
        std::rethrow_exception(failure_);
    }
    DecodedWindow window = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return window;
}

std::optional<std::vector<RowGroupJob>> WindowDecoder::AwaitWindow() {
    // Whoever waits for a window that is begun must not wait for blocks of the next one.
    const bool can_wait = begun_.empty();
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_wanted = [&] { return !wanted_.empty() && ready_.size() + begun_.size() < WINDOWS_AHEAD; };
    if (can_wait) {
        changed_.wait(lock, [&] { return is_stopped_ || is_wanted(); });
    }
    if (is_stopped_ || !is_wanted()) {
        return std::nullopt;
    }
    lock.unlock();
    if (!can_wait && !reader_.IsReady()) {
        return std::nullopt;
    }
    lock.lock();
    std::vector<RowGroupJob> groups = std::move(wanted_.front());
    wanted_.pop_front();
    return groups;
}

void WindowDecoder::Begin(std::vector<RowGroupJob> groups) {
    blocks_ = std::make_shared<BlocksOnDevice>(reader_.Next(), blocks_.get(), *device_, block_bytes_);
    begun_.push_back(BeginRows(std::move(groups), blocks_, device_));
}

void WindowDecoder::Finish() {
    DecodedWindow window;
    window.groups = begun_.front()->Finish(window.counters);
    begun_.pop_front();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ready_.push_back(std::move(window));
    }
    changed_.notify_all();
}

void WindowDecoder::DecodeAll() {
    constexpr size_t BEGUN_MOST = 2;
    while (true) {
        std::exception_ptr failure;
        std::optional<std::vector<RowGroupJob>> groups = AwaitWindow();
        if (!groups && begun_.empty()) {
            return;
        }
        try {
            if (groups) {
                Begin(std::move(*groups));
            }
        } catch (...) {
            failure = std::current_exception(); // of this window: those before come first
        }
        while (!begun_.empty() && (failure || !groups || begun_.size() == BEGUN_MOST)) {
            Finish();
            if (!failure) {
                break;
            }
        }
        if (failure) {
            std::rethrow_exception(failure);
        }
    }
}

void WindowDecoder::Run() {
    try {
        DecodeAll();
    } catch (...) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            failure_ = std::current_exception();
        }
        changed_.notify_all();
    }
    begun_.clear();
    blocks_.reset();
}

} // namespace rawduck::gpu
