//! For tests of what a killed process leaves.
#pragma once

#include "common/error.hpp"
#include "io/device/device.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace rawduck {

//! A device whose process is killed at a flush: what was written stays in the cache of the medium.
class KilledAtFlush final : public Device {
  public:
    KilledAtFlush(std::unique_ptr<Device> inner, uint64_t flushes)
        : inner_(std::move(inner)), flushes_max_(flushes) {}
    const Capabilities &Caps() const override { return inner_->Caps(); }
    uint64_t CurrentCapacity() const override { return inner_->CurrentCapacity(); }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        return inner_->CreateQueue(depth, use);
    }
    void Flush() override {
        if (flushes_.fetch_add(1) >= flushes_max_) {
            throw Error(ErrorCode::IO, "killed");
        }
        inner_->Flush();
    }
    bool Deallocate(uint64_t device_offset, uint64_t length) override {
        return inner_->Deallocate(device_offset, length);
    }

  private:
    std::unique_ptr<Device> inner_;
    const uint64_t flushes_max_;
    std::atomic<uint64_t> flushes_{0};
};

} // namespace rawduck
