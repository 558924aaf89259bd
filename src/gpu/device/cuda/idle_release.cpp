#include "gpu/device/cuda/idle_release.hpp"

#include <thread>

namespace rawduck::gpu::cuda {

IdleRelease &IdleRelease::OfProcess() {
    static auto &release = *new IdleRelease; // never destroyed: its thread runs as long as the process
    return release;
}

void IdleRelease::Add(const std::shared_ptr<Gpu> &gpu, std::shared_ptr<void> &kept) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_running_) {
        std::thread([this] { Run(); }).detach();
        is_running_ = true;
    }
    waiting_.push_back({gpu, kept});
    kept.reset();
    added_++;
    changed_.notify_all();
}

void IdleRelease::Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t added = added_;
    changed_.wait(lock, [&] { return gone_ >= added; });
}

void IdleRelease::Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return !waiting_.empty(); });
        std::vector<Waiting> idle;
        idle.swap(waiting_);
        lock.unlock();
        const uint64_t count = idle.size();
        const Gpu *waited_for = nullptr;
        for (Waiting &one : idle) {
            if (one.gpu.get() != waited_for) {
                one.gpu->WaitForAllNoted();
                waited_for = one.gpu.get();
            }
            one.kept.reset();
        }
        idle.clear();
        lock.lock();
        gone_ += count;
        changed_.notify_all();
    }
}

} // namespace rawduck::gpu::cuda
