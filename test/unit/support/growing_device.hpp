//! A device that becomes larger while it is open, for tests: it has what it wraps, and tells of a part.
#pragma once

#include "io/device/device.hpp"

#include <atomic>
#include <memory>
#include <utility>

namespace rawduck {

class GrowingDevice final : public Device {
  public:
    GrowingDevice(std::unique_ptr<Device> inner, std::shared_ptr<const std::atomic<uint64_t>> capacity)
        : inner_(std::move(inner)), capacity_(std::move(capacity)), caps_(inner_->Caps()) {
        caps_.capacity_bytes = *capacity_;
    }
    const Capabilities &Caps() const override { return caps_; }
    uint64_t CurrentCapacity() const override { return *capacity_; }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        return inner_->CreateQueue(depth, use);
    }
    void Flush() override { inner_->Flush(); }
    bool Deallocate(uint64_t device_offset, uint64_t length) override {
        return inner_->Deallocate(device_offset, length);
    }

  private:
    const std::unique_ptr<Device> inner_;
    const std::shared_ptr<const std::atomic<uint64_t>> capacity_;
    Capabilities caps_;
};

} // namespace rawduck
