//! A device for tests of BlockIo: completes out of order, checks every command, and fails on demand.
#pragma once

#include "common/error.hpp"
#include "io/device/device.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <vector>

namespace rawduck {

//! Outlives the device, for the test to look at.
struct FakeState {
    explicit FakeState(uint64_t capacity) : bytes(capacity) {
        caps.engine = "fake";
        caps.capacity_bytes = capacity;
        caps.lba_size = 512;
        caps.memory_alignment = 512;
        caps.max_transfer_bytes = 4096;
        caps.max_queue_depth = 8;
        caps.deallocate = true;
    }
    Capabilities caps;
    std::vector<char> bytes;
    //! The result of the command with this number (from 0); by default its length.
    std::function<int64_t(const Command &, uint64_t number)> result;
    //! Called before a command is accepted; may throw.
    std::function<void(const Command &)> on_submit;
    uint32_t refuse_at = UINT32_MAX; //!< Submit refuses while so many are in flight, whatever Depth says

    //! Copies of all completed commands. Other threads, such as a volume's checkpoints, may send more meanwhile.
    std::vector<Command> Commands() {
        std::lock_guard<std::mutex> guard(mutex);
        return commands_;
    }
    uint64_t Completed(Opcode opcode) {
        const std::vector<Command> seen = Commands();
        return static_cast<uint64_t>(std::count_if(
            seen.begin(), seen.end(), [opcode](const Command &command) { return command.opcode == opcode; }));
    }
    void ForgetCommands() {
        std::lock_guard<std::mutex> guard(mutex);
        commands_.clear();
    }
    //! For tests in which memory runs out: the device itself has enough.
    void ReserveCommands(size_t count) { commands_.reserve(count); }

    std::mutex mutex;
    uint64_t completed = 0;
    uint32_t max_in_flight = 0;
    int32_t in_flight = 0;
    int queues_made = 0, queues_alive = 0, flushes = 0;
    bool fail_flush = false, fail_deallocate = false;
    uint16_t nvme_status = 0; //!< of failed commands

  private:
    friend class FakeQueue;
    std::vector<Command> commands_;
};

class FakeQueue final : public Queue {
  public:
    FakeQueue(FakeState &state, uint32_t depth) : state_(state), depth_(depth) {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.queues_made++;
        state_.queues_alive++;
    }
    ~FakeQueue() override {
        EXPECT_TRUE(pending_.empty()) << "a queue was destroyed with commands in flight";
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.queues_alive--;
    }

    bool Submit(Command &command) override {
        Check(command);
        if (state_.on_submit) {
            state_.on_submit(command);
        }
        if (pending_.size() >= std::min(depth_, state_.refuse_at)) {
            return false;
        }
        pending_.push_back(&command);
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.in_flight++;
        state_.max_in_flight = std::max(state_.max_in_flight, static_cast<uint32_t>(pending_.size()));
        return true;
    }

    //! One at a time, the newest first, and only when asked to wait: the worst that a device may do.
    uint32_t Reap(Command **completed, uint32_t max, bool wait) override {
        if (!wait) {
            return 0;
        }
        EXPECT_FALSE(pending_.empty()) << "waiting with nothing in flight";
        EXPECT_GT(max, 0u);
        Command *command = pending_.back();
        pending_.pop_back();
        std::lock_guard<std::mutex> guard(state_.mutex);
        Complete(*command);
        state_.in_flight--;
        completed[0] = command;
        return 1;
    }
    uint32_t Depth() const override { return depth_; }

  private:
    void Check(const Command &command) const {
        EXPECT_GT(command.length, 0u);
        EXPECT_LE(command.length, state_.caps.max_transfer_bytes);
        EXPECT_TRUE(IsAligned(command.length, state_.caps.lba_size));
        EXPECT_TRUE(IsAligned(command.device_offset, state_.caps.lba_size));
        EXPECT_TRUE(IsAligned(reinterpret_cast<uintptr_t>(command.data), state_.caps.memory_alignment));
        EXPECT_LE(command.device_offset + command.length, state_.bytes.size());
    }

    void Complete(Command &command) {
        uint64_t number = state_.completed++;
        command.result = state_.result ? state_.result(command, number) : command.length;
        command.nvme_status = command.result < 0 ? state_.nvme_status : 0;
        if (command.result > 0) {
            auto count = static_cast<size_t>(command.result);
            char *place = state_.bytes.data() + command.device_offset;
            command.opcode == Opcode::READ ? std::memcpy(command.data, place, count)
                                           : std::memcpy(place, command.data, count);
        }
        state_.commands_.push_back(command);
    }

    FakeState &state_;
    const uint32_t depth_;
    std::vector<Command *> pending_;
};

class FakeDevice : public Device {
  public:
    explicit FakeDevice(FakeState &state) : state_(state) {}
    ~FakeDevice() override {
        EXPECT_EQ(state_.queues_alive, 0) << "queues must be destroyed before their device";
    }
    const Capabilities &Caps() const override { return state_.caps; }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        return std::make_unique<FakeQueue>(state_, depth);
    }
    void Flush() override {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.flushes++;
        if (state_.fail_flush) {
            throw Error(ErrorCode::IO, "fake: flush failed");
        }
    }
    bool Deallocate(uint64_t, uint64_t) override {
        if (state_.fail_deallocate) {
            throw Error(ErrorCode::IO, "fake: deallocate failed");
        }
        return true;
    }

  protected:
    FakeState &state_;
};

} // namespace rawduck
