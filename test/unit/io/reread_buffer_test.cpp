#include "io/reread_buffer.hpp"

#include "io/block_io.hpp"
#include "support/fake_device.hpp"
#include "support/out_of_memory.hpp"
#include "support/test_support.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t PIECE = RereadBuffer::PIECE_BYTES;
constexpr uint64_t PIECES_MAX = 4;

//! A device behind a buffer of four pieces, whose every byte
//! says which piece it is in and how often that was written.
class RereadBufferTest : public ::testing::Test {
  protected:
    RereadBufferTest() : state_(64 * PIECE) {
        state_.caps.max_transfer_bytes = PIECE;
        BlockIoOptions options;
        options.reread_buffer_bytes = PIECES_MAX * PIECE;
        io_ = std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state_), options, "fake0",
                                        std::make_shared<IoStats>());
        for (uint64_t i = 0; i < 64; i++) {
            Write(i, 0);
        }
    }

    static std::vector<char> Content(uint64_t piece, char version) {
        return std::vector<char>(PIECE, static_cast<char>(piece * 4 + static_cast<uint64_t>(version)));
    }
    void Write(uint64_t piece, char version) {
        const std::vector<char> data = Content(piece, version);
        io_->Write(piece * PIECE, data.data(), data.size());
    }
    std::vector<char> Read(uint64_t offset, uint64_t length = PIECE, bool reread = true) {
        std::vector<char> data(length);
        Request request;
        request.segments = {Segment{offset, data.data(), length}};
        request.reread = reread;
        io_->Execute(request);
        return data;
    }
    //! Reads a piece whose content must be right, and returns whether the device was asked.
    bool AsksDevice(uint64_t piece, char version = 0) {
        const uint64_t before = state_.completed;
        EXPECT_EQ(Read(piece * PIECE), Content(piece, version)) << "piece " << piece;
        return state_.completed > before;
    }

    FakeState state_;
    std::unique_ptr<BlockIo> io_;
};

TEST_F(RereadBufferTest, NotesFirstAndKeepsOnceItPays) {
    EXPECT_TRUE(AsksDevice(1));
    EXPECT_EQ(io_->RereadBytes(), 0u) << "nothing was read twice yet";
    EXPECT_TRUE(AsksDevice(1));
    EXPECT_FALSE(AsksDevice(1));
    EXPECT_EQ(io_->RereadBytes(), PIECE);
    EXPECT_EQ(io_->Rereads().reads, 2u);
    EXPECT_EQ(io_->Rereads().hits, 1u);
    EXPECT_TRUE(AsksDevice(2));
    EXPECT_FALSE(AsksDevice(2)) << "by now it is worth keeping what is read";
}

TEST_F(RereadBufferTest, WhatWasReadIsReadWhereverMemoryRunsOutAfterwards) {
    state_.ReserveCommands(100000);
    AsksDevice(60);
    std::mt19937_64 random(1);
    bool failed = true;
    for (int64_t before = 0; failed; before++) {
        failed = false;
        for (int step = 0; step < 40; step++) {
            const uint64_t piece = random() % (PIECES_MAX + 2);
            std::vector<char> data(PIECE);
            Request request;
            request.segments = {Segment{piece * PIECE, data.data(), PIECE}};
            request.reread = true;
            const uint64_t commands = state_.completed;
            bool done = true;
            {
                OutOfMemoryAfter memory(before);
                try {
                    io_->Execute(request);
                } catch (const std::bad_alloc &) {
                    done = false;
                }
                failed = failed || memory.Failed();
            }
            if (done) {
                ASSERT_EQ(data == Content(piece, 0), true) << "piece " << piece << ", allocation " << before;
            } else {
                ASSERT_EQ(state_.completed, commands) << "it was read, and then failed";
            }
        }
    }
    EXPECT_LE(io_->RereadBytes(), PIECES_MAX * PIECE);
    for (uint64_t i = 0; i < PIECES_MAX; i++) {
        AsksDevice(i);
    }
}

TEST_F(RereadBufferTest, NotesNoMoreThanItCouldKeep) {
    for (uint64_t i = 0; i <= PIECES_MAX; i++) {
        AsksDevice(i);
    }
    AsksDevice(0);
    EXPECT_EQ(io_->Rereads().reads, 0u) << "what lies so far back could not have been kept";
    AsksDevice(PIECES_MAX);
    EXPECT_EQ(io_->Rereads().reads, 1u);
}

TEST_F(RereadBufferTest, StopsCopyingWhenNothingIsReadAgain) {
    AsksDevice(0);
    AsksDevice(0);
    for (uint64_t i = 1; i < 40; i++) {
        EXPECT_TRUE(AsksDevice(i));
    }
    EXPECT_TRUE(AsksDevice(39)) << "it was only noted";
    EXPECT_FALSE(AsksDevice(39));
}

TEST_F(RereadBufferTest, TheOldestAndThoseThatWereReadAgainGiveWay) {
    for (const uint64_t piece : {9, 9, 1, 2, 3, 4, 3}) { // 9 is gone with 4, and 3 is wanted least after it
        Read(piece * PIECE);
    }
    EXPECT_TRUE(AsksDevice(5)) << "in the place of 3";
    for (const uint64_t piece : {1, 2, 4, 5}) {
        EXPECT_FALSE(AsksDevice(piece)) << piece;
    }
    EXPECT_EQ(io_->RereadBytes(), PIECES_MAX * PIECE);
    EXPECT_TRUE(AsksDevice(3));
}

TEST_F(RereadBufferTest, PartsOfAPieceAndLongReads) {
    Read(8 * PIECE, 3 * PIECE);
    Read(8 * PIECE);
    Read(8 * PIECE, 3 * PIECE);
    for (const uint64_t piece : {8, 9, 10}) {
        EXPECT_FALSE(AsksDevice(piece)) << "a long read is kept in pieces";
    }
    const uint64_t before = state_.completed;
    EXPECT_EQ(Read(9 * PIECE + 16 * KIB, 64 * KIB), std::vector<char>(64 * KIB, Content(9, 0)[0]));
    EXPECT_EQ(state_.completed, before);
    EXPECT_EQ(Read(9 * PIECE + 512, PIECE)[PIECE - 512], Content(10, 0)[0]) << "over two pieces";
    EXPECT_GT(state_.completed, before);
}

TEST_F(RereadBufferTest, OnlyWhatIsSaidToBeReadAgain) {
    for (int i = 0; i < 3; i++) {
        Read(0, PIECE, false);
    }
    EXPECT_EQ(io_->Rereads().reads, 0u);
    Read(0);
    Read(0);
    Read(0);
    const uint64_t before = state_.completed;
    Read(0, PIECE, false);
    EXPECT_GT(state_.completed, before) << "who checks a device wants the device";
}

TEST_F(RereadBufferTest, WhatIsWrittenOrDeallocatedIsForgotten) {
    for (const uint64_t piece : {1, 1, 2, 3}) {
        Read(piece * PIECE);
    }
    Write(2, 1);
    EXPECT_TRUE(AsksDevice(2, 1));
    EXPECT_FALSE(AsksDevice(1)) << "nothing else";
    const std::vector<char> part(512, 'x');
    io_->Write(3 * PIECE + 512, part.data(), part.size());
    EXPECT_EQ(Read(3 * PIECE)[512], 'x') << "a part of a piece";
    Read(5 * PIECE);
    io_->Deallocate({{5 * PIECE + 4096, 4096}});
    EXPECT_TRUE(AsksDevice(5));
    Read(6 * PIECE);
    io_->InvalidateRereads(6 * PIECE + 512, 1);
    EXPECT_TRUE(AsksDevice(6));
}

TEST_F(RereadBufferTest, AFailedWriteIsForgottenToo) {
    Read(PIECE);
    Read(PIECE);
    state_.result = [](const Command &command, uint64_t) -> int64_t {
        return command.opcode == Opcode::WRITE ? -EIO : static_cast<int64_t>(command.length);
    };
    EXPECT_THROW(Write(1, 1), Error);
    EXPECT_TRUE(AsksDevice(1));
}

TEST_F(RereadBufferTest, AFailedDeallocationIsForgottenToo) {
    Read(PIECE);
    Read(PIECE);
    state_.fail_deallocate = true;
    EXPECT_THROW(io_->Deallocate({{PIECE, PIECE}}), Error);
    EXPECT_TRUE(AsksDevice(1));
}

TEST_F(RereadBufferTest, WhatWasReadBeforeAWriteIsNotKept) {
    RereadBuffer buffer(PIECES_MAX * PIECE);
    std::vector<char> data = Content(0, 0);
    buffer.Keep(buffer.Ticket(), 0, data.data(), PIECE);
    EXPECT_FALSE(buffer.Read(0, data.data(), PIECE)) << "only noted; from now on it is kept";
    const uint64_t ticket = buffer.Ticket();
    buffer.Invalidate(0, 512);
    buffer.Keep(ticket, 0, data.data(), PIECE);
    EXPECT_FALSE(buffer.Read(0, data.data(), PIECE));
    EXPECT_EQ(buffer.Counters().reads, 1u) << "not even noted";
    buffer.Keep(buffer.Ticket(), 0, data.data(), PIECE);
    EXPECT_TRUE(buffer.Read(0, data.data(), PIECE));
}

TEST_F(RereadBufferTest, OfAllWritesOnlySpillingForgetsNothing) {
    const std::vector<char> data = Content(40, 1);
    for (const auto placement : {PlacementClass::TEMPORARY, PlacementClass::WAL, PlacementClass::DATABASE}) {
        Read(PIECE);
        Read(PIECE);
        std::atomic<bool> written{false};
        // While piece 2 is being read, somebody writes elsewhere.
        state_.on_submit = [&](const Command &command) {
            if (command.opcode == Opcode::READ && !written.exchange(true)) {
                std::thread([&] { io_->Write(40 * PIECE, data.data(), PIECE, placement); }).join();
            }
        };
        Read(2 * PIECE);
        state_.on_submit = nullptr;
        EXPECT_TRUE(written);
        EXPECT_EQ(AsksDevice(2), placement != PlacementClass::TEMPORARY) << PlacementClassName(placement);
        io_->InvalidateRereads(0, 64 * PIECE);
    }
}

TEST_F(RereadBufferTest, NoneWhereNoneIsWanted) {
    BlockIoOptions options;
    options.reread_buffer_bytes = PIECE - 1;
    FakeState state(PIECE);
    state.caps.max_transfer_bytes = PIECE;
    io_ = std::make_unique<BlockIo>(std::make_unique<FakeDevice>(state), options, "fake0",
                                    std::make_shared<IoStats>());
    for (int i = 0; i < 3; i++) {
        Read(0);
    }
    EXPECT_EQ(state.completed, 3u);
    EXPECT_EQ(io_->RereadBytes(), 0u);
    EXPECT_EQ(io_->Rereads().reads, 0u);
    io_.reset(); // before the state that it uses
}

// Versions only grow. A reader must never see one that is older
// than the newest that was complete before its read began.
TEST_F(RereadBufferTest, ManyThreadsNeverSeeWhatWasThereBefore) {
    constexpr uint64_t PLACES = 6; // more than there is memory for
    std::array<std::atomic<int>, PLACES> complete{};
    std::array<std::mutex, PLACES> writing;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> reads{0}, stale{0};
    auto write = [&](unsigned seed) {
        std::mt19937 random(seed);
        std::vector<char> data(PIECE);
        while (!stop) {
            const uint64_t place = random() % PLACES;
            std::lock_guard<std::mutex> guard(writing[place]);
            const int version = complete[place] + 1;
            std::fill_n(reinterpret_cast<int *>(data.data()), PIECE / sizeof(int), version);
            io_->Write(place * PIECE, data.data(), PIECE);
            complete[place] = version;
            std::this_thread::yield();
        }
    };
    auto read = [&](unsigned seed) {
        std::mt19937 random(seed);
        while (!stop) {
            const uint64_t place = random() % PLACES;
            const int oldest = complete[place];
            const std::vector<char> data = Read(place * PIECE);
            const int *versions = reinterpret_cast<const int *>(data.data());
            stale += *std::min_element(versions, versions + PIECE / sizeof(int)) < oldest ? 1 : 0;
            reads++;
        }
    };
    for (uint64_t i = 0; i < PLACES; i++) {
        const std::vector<char> zeros(PIECE);
        io_->Write(i * PIECE, zeros.data(), PIECE);
    }
    std::vector<std::thread> threads;
    threads.emplace_back(write, 1);
    for (unsigned i = 0; i < 3; i++) {
        threads.emplace_back(read, 10 + i);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while ((reads < 3000 || io_->Rereads().hits < 100) && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    stop = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(stale, 0u) << "of " << reads << " reads";
    EXPECT_GE(io_->Rereads().hits, 100u);
}

} // namespace
} // namespace rawduck
