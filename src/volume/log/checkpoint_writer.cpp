#include "volume/log/checkpoint_writer.hpp"

#include "common/process/fork_generation.hpp"

#include <chrono>
#include <new>
#include <system_error>

namespace rawduck {

namespace {

//! Until memory is asked for again.
constexpr std::chrono::milliseconds RETRY_DELAY(50);

} // namespace

CheckpointWriter::CheckpointWriter(std::function<bool()> write)
    : write_(std::move(write)), fork_generation_(ForkGeneration()) {}

CheckpointWriter::~CheckpointWriter() {
    Stop();
}

void CheckpointWriter::Wake() noexcept {
    if (fork_generation_ != ForkGeneration()) {
        return; // the thread, and whatever it had locked, stayed with the parent
    }
    std::lock_guard<std::mutex> guard(mutex_);
    pending_ = true;
    try {
        if (!thread_ && !stop_) {
            thread_ = std::make_unique<std::thread>([this] { Run(); });
        }
    } catch (const std::bad_alloc &) {
        // It is tried again the next time. A commit that cannot go on without the checkpoint writes it itself.
    } catch (const std::system_error &) {
    }
    wake_.notify_all();
}

void CheckpointWriter::Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
        wake_.wait(lock, [this] { return stop_ || pending_; });
        if (stop_) {
            return;
        }
        pending_ = false;
        lock.unlock();
        const bool written = write_();
        lock.lock();
        if (!written) {
            pending_ = true;
            wake_.wait_for(lock, RETRY_DELAY, [this] { return stop_; });
        }
    }
}

void CheckpointWriter::Stop() {
    if (fork_generation_ != ForkGeneration()) {
        static_cast<void>(thread_.release()); // it runs in the parent, and cannot be joined from here
        return;
    }
    std::unique_ptr<std::thread> thread;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        stop_ = true;
        thread.swap(thread_);
    }
    wake_.notify_all();
    if (thread) {
        thread->join();
    }
}

} // namespace rawduck
