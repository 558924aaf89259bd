#include "io/block_io.hpp"
#include "support/fake_device.hpp"
#include "support/test_support.hpp"

#include <cerrno>
#include <set>

namespace rawduck {
namespace {

class BlockIoTest : public ::testing::Test {
  protected:
    BlockIoTest() : state_(1 * MIB), stats_(std::make_shared<IoStats>()) {
        state_.bytes = Pattern(1 * MIB, 1);
    }

    BlockIo &Io(uint32_t depth = 32) {
        if (!io_) {
            BlockIoOptions options;
            options.queue_depth = depth;
            io_ = std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state_), options, "fake0", stats_);
        }
        return *io_;
    }
    void TearDown() override {
        EXPECT_EQ(state_.in_flight, 0) << "a call returned with commands in flight";
        io_.reset();
        EXPECT_EQ(state_.queues_alive, 0);
    }
    void ExpectSame(const char *found, uint64_t offset, uint64_t length) {
        EXPECT_EQ(std::memcmp(found, state_.bytes.data() + offset, length), 0);
    }
    IoCounters Counters(IoOperation operation) { return stats_->Snapshot(operation); }

    FakeState state_;
    std::shared_ptr<IoStats> stats_;
    std::unique_ptr<BlockIo> io_;
    alignas(4096) char buffer_[256 * KIB] = {};
};

TEST_F(BlockIoTest, SplitsIntoCommandsThatFitAndKeepsThemInFlightTogether) {
    Io().Read(512, buffer_, 40960 + 512);
    ExpectSame(buffer_, 512, 40960 + 512);
    EXPECT_EQ(state_.Commands().size(), 11u);
    EXPECT_EQ(state_.max_in_flight, 8u);
    IoCounters read = Counters(IoOperation::READ);
    EXPECT_EQ(read.requests, 1u);
    EXPECT_EQ(read.commands, 11u);
    EXPECT_EQ(read.bytes, 40960u + 512u);
    EXPECT_EQ(read.bounce_bytes, 0u);
    EXPECT_EQ(read.depth_max, 8u);
}

TEST_F(BlockIoTest, UsesTheDepthAskedForWhenTheDeviceHasMore) {
    Io(3).Read(0, buffer_, 40960);
    EXPECT_EQ(state_.max_in_flight, 3u);
}

TEST_F(BlockIoTest, CommandsNeverCrossSegmentsAndAllSegmentsShareTheQueue) {
    Request request;
    request.segments = {{0, buffer_, 512},
                        {8192, buffer_ + 512, 8192},
                        {4096, buffer_ + 16384, 0},
                        {65536, buffer_ + 16384, 4608}};
    Io().Execute(request);
    ExpectSame(buffer_, 0, 512);
    ExpectSame(buffer_ + 512, 8192, 8192);
    ExpectSame(buffer_ + 16384, 65536, 4608);
    std::multiset<uint32_t> lengths;
    for (const auto &command : state_.Commands()) {
        lengths.insert(command.length);
    }
    EXPECT_EQ(lengths, (std::multiset<uint32_t>{512, 512, 4096, 4096, 4096}));
    EXPECT_EQ(state_.max_in_flight, 5u);
}

TEST_F(BlockIoTest, AnEmptyRequestDoesNothing) {
    Io().Execute({});
    Io().Read(0, nullptr, 0);
    EXPECT_TRUE(state_.Commands().empty());
}

TEST_F(BlockIoTest, BouncesWhatIsNotAligned) {
    Io().Read(4096, buffer_ + 16, 65536);
    ExpectSame(buffer_ + 16, 4096, 65536);
    EXPECT_EQ(Counters(IoOperation::READ).bounce_bytes, 65536u);
    auto data = Pattern(65536 + 16, 7);
    std::copy(data.begin(), data.end(), buffer_ + 1);
    Io().Write(8192, buffer_ + 1, 65536);
    EXPECT_EQ(std::memcmp(state_.bytes.data() + 8192, data.data(), 65536), 0);
    EXPECT_EQ(Counters(IoOperation::WRITE).bounce_bytes, 65536u);
    EXPECT_EQ(state_.max_in_flight, 8u);
}

TEST_F(BlockIoTest, BouncesOnlyTheSegmentsThatNeedIt) {
    Request request;
    request.segments = {{0, buffer_, 8192}, {16384, buffer_ + 8192 + 4, 4096}};
    Io().Execute(request);
    ExpectSame(buffer_, 0, 8192);
    ExpectSame(buffer_ + 8192 + 4, 16384, 4096);
    EXPECT_EQ(Counters(IoOperation::READ).bounce_bytes, 4096u);
}

TEST_F(BlockIoTest, MoreInFlightThanBounceChunks) {
    state_.caps.max_queue_depth = 64;
    Io(64).Read(0, buffer_ + 4, 200 * KIB);
    ExpectSame(buffer_ + 4, 0, 200 * KIB);
    EXPECT_EQ(state_.max_in_flight, 16u);
}

TEST_F(BlockIoTest, FinishesShortTransfers) {
    state_.result = [](const Command &command, uint64_t) -> int64_t {
        return command.length > 1024 ? static_cast<int64_t>(command.length) - 1000 : command.length;
    };
    Io().Read(0, buffer_, 20480);
    ExpectSame(buffer_, 0, 20480);
    Io().Read(20480, buffer_ + 4, 20480);
    ExpectSame(buffer_ + 4, 20480, 20480);
    auto data = Pattern(20480, 9);
    Io().Write(512, data.data(), data.size());
    EXPECT_EQ(std::memcmp(state_.bytes.data() + 512, data.data(), data.size()), 0);
    EXPECT_EQ(Counters(IoOperation::READ).bounce_bytes, 20480u);
}

TEST_F(BlockIoTest, AShortTransferKeepsTheMemoryAligned) {
    state_.caps.memory_alignment = 4096;
    state_.caps.max_transfer_bytes = 16384;
    state_.result = [](const Command &command, uint64_t number) -> int64_t {
        return number < 4 ? std::min<int64_t>(command.length, 4608) : command.length;
    };
    Io().Read(512, buffer_, 65536); // the fake device checks the address of every command
    ExpectSame(buffer_, 512, 65536);
}

TEST_F(BlockIoTest, RetriesWhatWasInterrupted) {
    state_.result = [](const Command &command, uint64_t number) -> int64_t {
        return number % 3 == 0 ? -EINTR : number % 3 == 1 ? -EAGAIN : static_cast<int64_t>(command.length);
    };
    Io(2).Read(0, buffer_, 16384);
    ExpectSame(buffer_, 0, 16384);
    EXPECT_EQ(Counters(IoOperation::READ).bytes, 16384u);
    EXPECT_GT(Counters(IoOperation::READ).commands, 4u);
}

TEST_F(BlockIoTest, GivesUpRetryingAtSomePoint) {
    state_.result = [](const Command &, uint64_t) -> int64_t { return -EAGAIN; };
    Error error = CatchError([&] { Io().Read(0, buffer_, 4096); });
    EXPECT_EQ(error.Code(), ErrorCode::IO);
    EXPECT_EQ(state_.Commands().size(), 16u);
    state_.result = [](const Command &, uint64_t) -> int64_t { return 100; };
    error = CatchError([&] { Io().Read(0, buffer_, 4096); });
    EXPECT_NE(std::string(error.what()).find("less than one unit"), std::string::npos) << error.what();
    EXPECT_EQ(state_.Commands().size(), 32u);
}

TEST_F(BlockIoTest, AnEndBeforeTheEndIsAnError) {
    state_.result = [](const Command &command, uint64_t) -> int64_t {
        return command.device_offset >= 8192 ? 0 : command.length;
    };
    Error error = CatchError([&] { Io().Read(0, buffer_, 16384); });
    EXPECT_EQ(error.Code(), ErrorCode::IO);
    EXPECT_NE(std::string(error.what()).find("read past the end of the device"), std::string::npos)
        << error.what();
}

TEST_F(BlockIoTest, DrainsBeforeItThrowsAndNamesTheCommand) {
    state_.result = [](const Command &command, uint64_t) -> int64_t {
        return command.device_offset == 32768 ? -EIO : static_cast<int64_t>(command.length);
    };
    Error error = CatchError([&] { Io().Read(4096, buffer_ + 4, 65536); });
    EXPECT_EQ(error.Code(), ErrorCode::IO);
    EXPECT_EQ(state_.in_flight, 0);
    EXPECT_EQ(state_.Commands().size(), 8u) << "commands were sent after the failure";
    std::string text = error.what();
    EXPECT_EQ(
        text.find("fake0: read of 4096 bytes at byte offset 32768 (LBA 64 to 71) failed: Input/output error"),
        0u)
        << text;
    state_.result = nullptr;
    Io().Read(4096, buffer_ + 4, 65536); // all slots and chunks are back
    ExpectSame(buffer_ + 4, 4096, 65536);
}

TEST_F(BlockIoTest, AFullQueueIsNoError) {
    state_.refuse_at = 2;
    Io().Read(0, buffer_, 65536);
    ExpectSame(buffer_, 0, 65536);
    EXPECT_EQ(state_.max_in_flight, 2u);
    Io().Read(0, buffer_ + 4, 65536);
    ExpectSame(buffer_ + 4, 0, 65536);
}

TEST_F(BlockIoTest, AnEmptyQueueThatRefusesIsAnError) {
    state_.refuse_at = 0;
    EXPECT_EQ(CatchError([&] { Io().Read(0, buffer_, 65536); }).Code(), ErrorCode::IO);
}

TEST_F(BlockIoTest, ABrokenQueueIsReplaced) {
    int submissions = 0;
    state_.on_submit = [&](const Command &) {
        if (++submissions == 4) {
            throw Error(ErrorCode::IO, "fake queue broke");
        }
    };
    Error error = CatchError([&] { Io().Read(0, buffer_ + 4, 65536); });
    EXPECT_STREQ(error.what(), "fake queue broke");
    EXPECT_EQ(state_.in_flight, 0);
    EXPECT_EQ(state_.queues_alive, 0);
    Io().Read(0, buffer_ + 4, 65536);
    ExpectSame(buffer_ + 4, 0, 65536);
    EXPECT_EQ(state_.queues_made, 2);
}

TEST_F(BlockIoTest, RefusesWhatCanNeverWorkBeforeAnyTransfer) {
    EXPECT_EQ(CatchError([&] { Io().Read(100, buffer_, 512); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([&] { Io().Read(0, buffer_, 100); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([&] { Io().Read(MIB - 512, buffer_, 1024); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([&] { Io().Read(UINT64_MAX - 511, buffer_, 1024); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([&] { Io().Read(0, nullptr, 512); }).Code(), ErrorCode::INVALID);
    EXPECT_EQ(CatchError([&] { Io().Deallocate({{0, 100}}); }).Code(), ErrorCode::INVALID);
    Request request;
    request.segments = {{0, buffer_, 512}, {MIB, buffer_ + 512, 512}};
    EXPECT_EQ(CatchError([&] { Io().Execute(request); }).Code(), ErrorCode::INVALID);
    EXPECT_TRUE(state_.Commands().empty());
    EXPECT_EQ(Counters(IoOperation::READ).requests, 0u);
}

TEST_F(BlockIoTest, RefusesAnImpossibleDepth) {
    BlockIoOptions options;
    for (uint32_t depth : {0u, 4097u}) {
        options.queue_depth = depth;
        auto make = [&] { BlockIo(std::make_unique<FakeDevice>(state_), options, "fake0", stats_); };
        EXPECT_EQ(CatchError(make).Code(), ErrorCode::INVALID);
    }
}

TEST_F(BlockIoTest, WhatTheDeviceGivesBackIsSentAgainButNotForLong) {
    state_.result = [](const Command &, uint64_t) -> int64_t { return -EAGAIN; };
    state_.nvme_status = 0x371; // aborted by the kernel, after a timeout
    const Error error = CatchError([&] { Io().Write(512, buffer_, 512); });
    EXPECT_EQ(state_.Commands().size(), 3u);
    EXPECT_NE(std::string(error.what()).find("(LBA 1 to 1) failed: the kernel aborted the command"),
              std::string::npos)
        << error.what();
    EXPECT_EQ(Counters(IoOperation::WRITE).errors, 1u);
    state_.result = [](const Command &command, uint64_t number) -> int64_t {
        return number < 4 ? -EAGAIN : static_cast<int64_t>(command.length);
    };
    Io().Write(512, buffer_, 512);
    EXPECT_EQ(state_.Commands().size(), 5u) << "the second attempt went well";
}

TEST_F(BlockIoTest, FlushIsCountedAndItsFailureIsPassedOn) {
    Io().Flush();
    EXPECT_EQ(state_.flushes, 1);
    EXPECT_EQ(Counters(IoOperation::FLUSH).requests, 1u);
    state_.fail_flush = true;
    EXPECT_EQ(CatchError([&] { Io().Flush(); }).Code(), ErrorCode::IO);
    EXPECT_EQ(state_.flushes, 2);
    EXPECT_EQ(Counters(IoOperation::FLUSH).commands, 2u);
    EXPECT_EQ(Counters(IoOperation::FLUSH).errors, 1u);
}

TEST_F(BlockIoTest, FlushIsSkippedWithoutAVolatileWriteCache) {
    state_.caps.volatile_write_cache = false;
    Io().Flush();
    EXPECT_EQ(state_.flushes, 0);
    EXPECT_EQ(Counters(IoOperation::FLUSH).requests, 0u);
}

TEST_F(BlockIoTest, FuaReachesEveryCommandAndIsCounted) {
    state_.caps.fua = true;
    Io().Execute({Opcode::WRITE, true, {{0, buffer_, 16384}}});
    ASSERT_EQ(state_.Commands().size(), 4u);
    for (const auto &command : state_.Commands()) {
        EXPECT_TRUE(command.fua);
    }
    EXPECT_EQ(Counters(IoOperation::WRITE).fua_commands, 4u);
    Io().Write(0, buffer_, 4096);
    EXPECT_FALSE(state_.Commands().back().fua);
    EXPECT_EQ(Counters(IoOperation::WRITE).fua_commands, 4u);
}

TEST_F(BlockIoTest, FuaIsLeftOutWithoutAVolatileWriteCache) {
    state_.caps.fua = true;
    state_.caps.volatile_write_cache = false;
    Io().Execute({Opcode::WRITE, true, {{0, buffer_, 4096}}});
    EXPECT_FALSE(state_.Commands().back().fua);
    EXPECT_EQ(Counters(IoOperation::WRITE).fua_commands, 0u);
}

TEST_F(BlockIoTest, FuaIsRefusedWhereItWouldBeDropped) {
    auto write = [&] { Io().Execute({Opcode::WRITE, true, {{0, buffer_, 4096}}}); };
    EXPECT_EQ(CatchError(write).Code(), ErrorCode::INVALID);
    EXPECT_TRUE(state_.Commands().empty());
}

TEST_F(BlockIoTest, DeallocateIsCounted) {
    EXPECT_TRUE(Io().Deallocate({{4096, 8192}}));
    EXPECT_EQ(Counters(IoOperation::DEALLOCATE).bytes, 8192u);
    EXPECT_FALSE(Io().Deallocate({{4096, 0}}));
    EXPECT_EQ(Counters(IoOperation::DEALLOCATE).errors, 0u);
    state_.fail_deallocate = true;
    EXPECT_EQ(CatchError([&] { Io().Deallocate({{4096, 8192}}); }).Code(), ErrorCode::IO);
    EXPECT_EQ(Counters(IoOperation::DEALLOCATE).errors, 1u);
    EXPECT_EQ(Counters(IoOperation::DEALLOCATE).bytes, 8192u) << "nothing was deallocated";
}

//! Before any command: it cannot make a queue.
class QueuelessDevice final : public FakeDevice {
  public:
    using FakeDevice::FakeDevice;
    std::unique_ptr<Queue> CreateQueue(uint32_t, QueueUse) override {
        throw Error(ErrorCode::IO, "fake: no queue at all");
    }
};

TEST_F(BlockIoTest, EveryRequestThatFailsIsCounted) {
    state_.result = [](const Command &, uint64_t) -> int64_t { return -EIO; };
    EXPECT_EQ(CatchError([&] { Io().Read(0, buffer_, 16384); }).Code(), ErrorCode::IO);
    EXPECT_EQ(CatchError([&] { Io().Write(0, buffer_, 16384); }).Code(), ErrorCode::IO);
    EXPECT_EQ(Counters(IoOperation::READ).errors, 1u);
    EXPECT_EQ(Counters(IoOperation::WRITE).errors, 1u);
    FakeState no_queue(1 * MIB);
    BlockIo without(std::make_unique<QueuelessDevice>(no_queue), BlockIoOptions(), "fake0", stats_);
    EXPECT_EQ(CatchError([&] { without.Read(0, buffer_, 512); }).Code(), ErrorCode::IO);
    EXPECT_EQ(Counters(IoOperation::READ).errors, 2u);
    EXPECT_EQ(Counters(IoOperation::READ).requests, 2u);
}

TEST_F(BlockIoTest, AReadOnlyDeviceRefusesWritesAndDeallocation) {
    state_.caps.read_only = true;
    EXPECT_EQ(CatchError([&] { Io().Write(0, buffer_, 512); }).Code(), ErrorCode::READ_ONLY);
    EXPECT_EQ(CatchError([&] { Io().Deallocate({{0, 512}}); }).Code(), ErrorCode::READ_ONLY);
    Io().Read(0, buffer_, 512);
}

} // namespace
} // namespace rawduck
