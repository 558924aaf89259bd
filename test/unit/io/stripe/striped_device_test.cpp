#include "io/stripe/striped_device.hpp"

#include "common/memory/aligned_buffer.hpp"
#include "io/block_io.hpp"
#include "support/fake_device.hpp"
#include "support/out_of_memory.hpp"
#include "support/test_support.hpp"

#include <atomic>
#include <memory>
#include <random>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t CHUNK = 16 * KIB, MEMBER_BYTES = 2 * MIB;

//! A device that tells when it is flushed, and what it is told to forget.
class WatchedDevice final : public FakeDevice {
  public:
    explicit WatchedDevice(FakeState &state) : FakeDevice(state) {}
    void Flush() override {
        if (on_flush) {
            on_flush();
        }
        FakeDevice::Flush();
    }
    bool Deallocate(uint64_t offset, uint64_t length) override {
        deallocated.push_back({offset, length});
        return true;
    }
    std::function<void()> on_flush;
    std::vector<DeviceRange> deallocated;
};

class StripedDeviceTest : public ::testing::Test {
  protected:
    void Open(size_t members) {
        stripe_.chunk_bytes = CHUNK;
        stripe_.data_start = MIB;
        stripe_.members.resize(members);
        for (size_t i = 0; i < members; i++) {
            stripe_.members[i].target.name = "fake" + std::to_string(i);
            if (states_.size() <= i) {
                states_.push_back(std::make_unique<FakeState>(MEMBER_BYTES));
            }
        }
        Reopen();
    }
    void Reopen() {
        io_.reset();
        watched_.clear();
        std::vector<std::unique_ptr<Device>> devices;
        for (const auto &state : states_) {
            auto device = std::make_unique<WatchedDevice>(*state);
            watched_.push_back(device.get());
            devices.push_back(std::move(device));
        }
        auto striped = std::make_unique<StripedDevice>("striped", stripe_, std::move(devices),
                                                       StripedDevice::Headers::NONE);
        device_ = striped.get();
        io_ = std::make_unique<BlockIo>(std::move(striped), BlockIoOptions(), "striped",
                                        std::make_shared<IoStats>());
    }
    std::vector<int> Flushes() const {
        std::vector<int> flushes;
        for (const auto &state : states_) {
            std::lock_guard<std::mutex> guard(state->mutex);
            flushes.push_back(state->flushes);
        }
        return flushes;
    }
    void WriteTo(size_t member) {
        AlignedBuffer data;
        data.AppendZeros(4096);
        io_->Write(member * CHUNK, data.Data(), 4096);
    }

    Stripe stripe_;
    std::vector<std::unique_ptr<FakeState>> states_;
    std::vector<WatchedDevice *> watched_;
    StripedDevice *device_ = nullptr;
    std::unique_ptr<BlockIo> io_;
};

} // namespace

TEST_F(StripedDeviceTest, WhatIsWrittenIsRead) {
    for (const size_t members : {2u, 3u, 5u}) {
        states_.clear();
        Open(members);
        std::mt19937_64 random(members);
        const uint64_t capacity = io_->Caps().capacity_bytes;
        EXPECT_EQ(capacity, (MEMBER_BYTES - MIB - 4096) / CHUNK * CHUNK * members);
        std::vector<char> expected(capacity);
        for (int i = 0; i < 100; i++) {
            const uint64_t length = (1 + random() % 300) * 512;
            const uint64_t offset = random() % ((capacity - length) / 512) * 512;
            const std::vector<char> bytes = Pattern(length, static_cast<uint32_t>(random()));
            io_->Write(offset, bytes.data(), length);
            std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
        }
        std::vector<char> found(capacity);
        io_->Read(0, found.data(), capacity);
        EXPECT_TRUE(found == expected);
        io_.reset();
    }
}

TEST_F(StripedDeviceTest, ACommandStaysWithinItsChunkAndIsMarkedWithItsMember) {
    Open(3);
    states_[1]->result = [](const Command &, uint64_t) { return -EIO; };
    AlignedBuffer data;
    data.AppendZeros(4 * CHUNK);
    const Error error = CatchError([&] { io_->Write(CHUNK / 2, data.Data(), CHUNK); });
    EXPECT_NE(std::string(error.what()).find("on member 1 (fake1)"), std::string::npos) << error.what();
    for (const auto &state : states_) {
        for (const Command &command : state->Commands()) {
            EXPECT_LE(command.device_offset % CHUNK + command.length, CHUNK);
        }
    }
}

TEST_F(StripedDeviceTest, ShortTransfersGoOnWhereTheyStopped) {
    Open(2);
    for (const auto &state : states_) {
        state->result = [](const Command &command, uint64_t number) {
            return number % 3 == 0 ? -EAGAIN : number % 3 == 1 ? int64_t(512) : int64_t(command.length);
        };
    }
    const std::vector<char> bytes = Pattern(10 * CHUNK, 7);
    io_->Write(3 * 512, bytes.data(), bytes.size());
    std::vector<char> found(bytes.size());
    io_->Read(3 * 512, found.data(), found.size());
    EXPECT_TRUE(found == bytes);
}

TEST_F(StripedDeviceTest, AllMembersHaveCommandsInFlight) {
    Open(4);
    AlignedBuffer bytes(32 * CHUNK); // what is copied has fewer in flight
    io_->Read(0, bytes.Data(), bytes.Size());
    for (const auto &state : states_) {
        EXPECT_GT(state->max_in_flight, 4u);
    }
}

TEST_F(StripedDeviceTest, EachThatWasWrittenToIsFlushed) {
    Open(3);
    io_->Flush(); // what somebody wrote before
    EXPECT_EQ(Flushes(), (std::vector<int>{1, 1, 1}));
    io_->Flush();
    EXPECT_EQ(Flushes(), (std::vector<int>{1, 1, 1})) << "nothing was written since";
    WriteTo(1);
    WriteTo(2);
    io_->Flush();
    EXPECT_EQ(Flushes(), (std::vector<int>{1, 2, 2}));
    states_[0]->result = [](const Command &, uint64_t) { return -EIO; };
    CatchError([&] { WriteTo(0); });
    io_->Flush();
    EXPECT_EQ(Flushes(), (std::vector<int>{2, 2, 2})) << "parts of what has failed may be there";
}

TEST_F(StripedDeviceTest, AFlushThatHasFailedFailsForEver) {
    Open(3);
    states_[1]->fail_flush = true;
    const Error error = CatchError([&] { io_->Flush(); });
    EXPECT_NE(std::string(error.what()).find("member 1 (fake1)"), std::string::npos) << error.what();
    EXPECT_EQ(Flushes(), (std::vector<int>{1, 1, 1})) << "the others are flushed all the same";
    states_[1]->fail_flush = false;
    EXPECT_EQ(CatchError([&] { io_->Flush(); }).Code(), ErrorCode::IO);
    WriteTo(1);
    EXPECT_EQ(CatchError([&] { io_->Flush(); }).Code(), ErrorCode::IO);
}

TEST_F(StripedDeviceTest, AFlushThatHasFailedIsRememberedWithoutMemory) {
    bool failed = true;
    for (int64_t allocations = 0; failed; allocations++) {
        io_.reset(); // which uses them
        states_.clear();
        Open(2);
        states_[1]->fail_flush = true;
        {
            const OutOfMemoryAfter none(allocations);
            EXPECT_ANY_THROW(io_->Flush());
            failed = none.Failed();
        }
        states_[1]->fail_flush = false;
        if (Flushes()[1] != 0) {
            EXPECT_ANY_THROW(io_->Flush()) << allocations;
        }
    }
}

// A write that completes while a flush is under way may not be covered by it.
TEST_F(StripedDeviceTest, AWriteDuringAFlushNeedsAnother) {
    Open(2);
    io_->Flush();
    WriteTo(0);
    bool once = false;
    watched_[0]->on_flush = [&] {
        if (!once) {
            once = true;
            WriteTo(0);
        }
    };
    io_->Flush();
    io_->Flush();
    EXPECT_EQ(Flushes(), (std::vector<int>{3, 1}));
}

// Its mark is gone, but what it covers is not durable before it is done.
TEST_F(StripedDeviceTest, AFlushWaitsForThatOfAnotherThread) {
    Open(2);
    io_->Flush();
    WriteTo(0);
    std::atomic<bool> flushing{false}, done{false};
    watched_[0]->on_flush = [&] {
        flushing = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        done = true;
    };
    std::thread other([&] { io_->Flush(); });
    while (!flushing) {
        std::this_thread::yield();
    }
    io_->Flush();
    EXPECT_TRUE(done);
    other.join();
    EXPECT_EQ(Flushes(), (std::vector<int>{2, 1}));
}

TEST_F(StripedDeviceTest, DeallocatedRangesAreThoseOfTheMembers) {
    Open(3);
    ASSERT_TRUE(io_->Deallocate({{CHUNK / 2, 4 * CHUNK}}));
    using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
    const Ranges expected[] = {
        {{MIB + CHUNK / 2, CHUNK + CHUNK / 2}}, {{MIB, CHUNK + CHUNK / 2}}, {{MIB, CHUNK}}};
    for (size_t i = 0; i < 3; i++) {
        Ranges found;
        for (const DeviceRange &range : watched_[i]->deallocated) {
            found.emplace_back(range.device_offset, range.length);
        }
        EXPECT_EQ(found, expected[i]) << i;
    }
}

TEST_F(StripedDeviceTest, ItCanDoWhatAllCan) {
    for (int i = 0; i < 2; i++) {
        states_.push_back(std::make_unique<FakeState>(MEMBER_BYTES));
        states_.back()->caps.fua = true;
    }
    states_[1]->caps.fua = states_[1]->caps.deallocate = false;
    states_[1]->caps.max_transfer_bytes = 2048;
    states_[0]->caps.volatile_write_cache = false;
    Open(2);
    const Capabilities &caps = io_->Caps();
    EXPECT_FALSE(caps.fua || caps.deallocate);
    EXPECT_EQ(caps.max_transfer_bytes, 2048u);
    EXPECT_TRUE(caps.volatile_write_cache);
    WriteTo(0);
    io_->Flush();
    EXPECT_EQ(Flushes(), (std::vector<int>{0, 1})) << "the one without a cache is not flushed";
}

TEST_F(StripedDeviceTest, PlacementIdentifiersAreTheMembersOwn) {
    for (int i = 0; i < 2; i++) {
        states_.push_back(std::make_unique<FakeState>(MEMBER_BYTES));
        states_.back()->caps.placement_obstacle.clear();
    }
    states_[0]->caps.placements = {PlacementId{4}, PlacementId{5}, PlacementId{6}};
    states_[1]->caps.placements = {PlacementId{0}, PlacementId{9}};
    Open(2);
    EXPECT_EQ(io_->Caps().placements, (std::vector<PlacementId>{PlacementId{0}, PlacementId{1}}));
    AlignedBuffer data;
    data.AppendZeros(2 * CHUNK);
    io_->Write(0, data.Data(), 2 * CHUNK, PlacementClass::TEMPORARY);
    for (const Command &command : states_[0]->Commands()) {
        EXPECT_EQ(command.placement, PlacementId{5});
    }
    for (const Command &command : states_[1]->Commands()) {
        EXPECT_EQ(command.placement, PlacementId{9});
    }
}

TEST_F(StripedDeviceTest, MembersHaveOneLbaSize) {
    for (const uint32_t lba_size : {512u, 4096u}) {
        states_.push_back(std::make_unique<FakeState>(MEMBER_BYTES));
        states_.back()->caps.lba_size = lba_size;
    }
    EXPECT_EQ(CatchError([&] { Open(2); }).Code(), ErrorCode::UNSUPPORTED);
}

TEST_F(StripedDeviceTest, TheSmallestMemberCounts) {
    states_.push_back(std::make_unique<FakeState>(MEMBER_BYTES));
    states_.push_back(std::make_unique<FakeState>(MIB + CHUNK + 4096));
    Open(2);
    EXPECT_EQ(io_->Caps().capacity_bytes, 2 * CHUNK);
}

TEST_F(StripedDeviceTest, ThreadsShareIt) {
    Open(3);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 4; i++) {
        threads.emplace_back([&, i] {
            const std::vector<char> bytes = Pattern(7 * CHUNK, i);
            std::vector<char> found(bytes.size());
            for (int round = 0; round < 20; round++) {
                io_->Write(i * 8 * CHUNK, bytes.data(), bytes.size());
                io_->Flush();
                io_->Read(i * 8 * CHUNK, found.data(), found.size());
                EXPECT_TRUE(found == bytes);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

} // namespace rawduck
