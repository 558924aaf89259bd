//! A device in memory with a volatile write cache that remembers every write and flush, so that a test can
//! cut the power after any of them: of the LBAs that no flush covered, each survives, is lost, or becomes
//! garbage.
#pragma once

#include "io/engines/synchronous_queue.hpp"

#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace rawduck {

class PowerCutTrace {
  public:
    PowerCutTrace(std::string image, uint32_t lba_size)
        : lba_size(lba_size), initial_(image), current_(std::move(image)) {}

    void Write(uint64_t offset, const char *data, uint64_t length) {
        std::lock_guard<std::mutex> guard(mutex_);
        current_.replace(offset, length, data, length);
        events_.push_back({offset, std::string(data, length)});
    }
    void Flush() {
        std::lock_guard<std::mutex> guard(mutex_);
        events_.push_back({0, ""});
    }
    void Read(uint64_t offset, char *data, uint64_t length) const {
        std::lock_guard<std::mutex> guard(mutex_);
        memcpy(data, current_.data() + offset, length);
    }
    //! Number of crash points so far.
    size_t Events() const {
        std::lock_guard<std::mutex> guard(mutex_);
        return events_.size();
    }
    uint64_t Capacity() const { return initial_.size(); }

    //! What is on the device when the power goes after the first `events` events.
    std::string CutAfter(size_t events, std::mt19937_64 &random) const {
        size_t flushed = 0;
        for (size_t i = 0; i < events; i++) {
            flushed = events_[i].data.empty() ? i + 1 : flushed;
        }
        std::string image = initial_;
        for (size_t i = 0; i < events; i++) {
            const Event &event = events_[i];
            for (uint64_t at = 0; at < event.data.size(); at += lba_size) {
                const int fate = i < flushed ? 0 : static_cast<int>(random() % 8);
                if (fate < 4) {
                    image.replace(event.offset + at, lba_size, event.data, at, lba_size);
                } else if (fate == 4) {
                    for (uint32_t byte = 0; byte < lba_size; byte++) {
                        image[event.offset + at + byte] = static_cast<char>(random());
                    }
                }
            }
        }
        return image;
    }

    const uint32_t lba_size;

  private:
    struct Event {
        uint64_t offset;
        std::string data; //!< empty: a flush
    };
    mutable std::mutex mutex_;
    const std::string initial_;
    std::string current_;
    std::vector<Event> events_;
};

class PowerCutDevice final : public Device {
  public:
    explicit PowerCutDevice(std::shared_ptr<PowerCutTrace> trace) : trace_(std::move(trace)) {
        caps_.engine = "simulated";
        caps_.capacity_bytes = trace_->Capacity();
        caps_.lba_size = trace_->lba_size;
        caps_.max_queue_depth = 32;
        caps_.max_transfer_bytes = 64 * 1024;
    }
    const Capabilities &Caps() const override { return caps_; }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        auto transfer = [trace = trace_](const Command &command) -> int64_t {
            if (command.opcode == Opcode::READ) {
                trace->Read(command.device_offset, static_cast<char *>(command.data), command.length);
            } else {
                trace->Write(command.device_offset, static_cast<const char *>(command.data), command.length);
            }
            return command.length;
        };
        return std::make_unique<SynchronousQueue>(depth, transfer);
    }
    void Flush() override { trace_->Flush(); }
    bool Deallocate(uint64_t, uint64_t) override { return false; }

  private:
    std::shared_ptr<PowerCutTrace> trace_;
    Capabilities caps_;
};

} // namespace rawduck
