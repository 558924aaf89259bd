#include "gpu/pipeline/window_decoder.hpp"

#include <numeric>
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

void WindowDecoder::Add(std::vector<RowGroupJob> groups, std::set<uint64_t> blocks, uint64_t bytes) {
    reader_.Add(std::move(blocks));
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        wanted_.push_back({std::move(groups), bytes});
    }
    if (!thread_.joinable()) {
        thread_ = std::thread([this] { Run(); });
    }
    changed_.notify_all();
}

std::optional<DecodedWindow> WindowDecoder::Next(std::chrono::milliseconds patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, patience, [&] { return failure_ || !ready_.empty(); })) {
        return std::nullopt;
    }
    if (ready_.empty()) {
        std::rethrow_exception(failure_);
    }
    DecodedWindow window = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return window;
}

bool WindowDecoder::IsWanted() const {
    if (wanted_.empty()) {
        return false;
    }
    const size_t ahead = ready_.size() + begun_bytes_.size();
    uint64_t bytes = std::accumulate(begun_bytes_.begin(), begun_bytes_.end(), wanted_.front().bytes);
    for (const DecodedWindow &window : ready_) {
        bytes += window.counters.bytes_decoded;
    }
    return ahead == 0 || (ahead < WINDOWS_AHEAD && bytes <= WINDOWS_AHEAD * WINDOW_BYTES_MOST);
}

std::optional<WindowDecoder::Window> WindowDecoder::AwaitWindow() {
    // Whoever waits for a window that is begun must not wait for blocks of the next one.
    const bool can_wait = begun_.empty();
    std::unique_lock<std::mutex> lock(mutex_);
    if (can_wait) {
        changed_.wait(lock, [&] { return is_stopped_ || IsWanted(); });
    }
    if (is_stopped_ || !IsWanted()) {
        return std::nullopt;
    }
    lock.unlock();
    if (!can_wait && !reader_.IsReady()) {
        return std::nullopt;
    }
    lock.lock();
    Window window = std::move(wanted_.front());
    wanted_.pop_front();
    begun_bytes_.push_back(window.bytes);
    return window;
}

void WindowDecoder::Begin(Window window) {
    blocks_ = std::make_shared<BlocksOnDevice>(reader_.Next(), blocks_.get(), *device_, block_bytes_);
    begun_.push_back(BeginRows(std::move(window.groups), blocks_, device_));
}

void WindowDecoder::Finish() {
    DecodedWindow window;
    window.groups = begun_.front()->Finish(window.counters);
    begun_.pop_front();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        begun_bytes_.pop_front();
        ready_.push_back(std::move(window));
    }
    changed_.notify_all();
}

void WindowDecoder::DecodeAll() {
    constexpr size_t BEGUN_MOST = 2;
    while (true) {
        std::exception_ptr failure;
        std::optional<Window> window = AwaitWindow();
        if (!window && begun_.empty()) {
            return;
        }
        try {
            if (window) {
                Begin(std::move(*window));
            }
        } catch (...) {
            failure = std::current_exception(); // of this window: those before come first
        }
        while (!begun_.empty() && (failure || !window || begun_.size() == BEGUN_MOST)) {
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
