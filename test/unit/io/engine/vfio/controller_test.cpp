//! The vfio engine's controller on a model: transfers through shared lanes, and every way to recover.
#include "io/block_io.hpp"
#include "io/engine/vfio/model_controller.hpp"
#include "io/engine/vfio/vfio_queue.hpp"
#include "support/test_support.hpp"

#include <atomic>
#include <cstring>
#include <sys/eventfd.h>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t TIMEOUT_MS = 50;

//! The engine's device, but for how it comes to its controller.
class ModelDevice final : public Device {
  public:
    ModelDevice(Controller &controller, bool polls) : controller_(controller), polls_(polls) {
        caps_.engine = "vfio";
        caps_.capacity_bytes = ModelState::CAPACITY;
        caps_.lba_size = ModelState::LBA_BYTES;
        caps_.memory_alignment = 4;
        caps_.max_transfer_bytes = controller.MaxTransferBytes();
        caps_.max_queue_depth = 64;
        caps_.registered_memory = true;
    }
    const Capabilities &Caps() const override { return caps_; }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse) override {
        return std::make_unique<VfioQueue>(controller_, 1, ModelState::LBA_BYTES, depth, polls_);
    }
    void Flush() override {
        nvme_passthru_cmd64 flush = {};
        EXPECT_EQ(controller_.Run(NvmeQueueKind::IO, flush), 0);
    }
    bool Deallocate(uint64_t, uint64_t) override { return false; }
    bool Register(void *memory, uint64_t bytes, MemoryNeed) override {
        return controller_.Memory().Register(memory, bytes) == 0;
    }
    void Forget(void *memory) override { controller_.Memory().Unregister(memory); }

  private:
    Controller &controller_;
    const bool polls_;
    Capabilities caps_;
};

class ControllerTest : public ::testing::Test {
  protected:
    void Start(bool polls = false) {
        ControllerOptions options;
        options.command_timeout_ms = TIMEOUT_MS;
        options.admin_timeout_ms = admin_timeout_ms_;
        options.silence_ms = silence_ms_;
        options.lanes_max = 3;
        auto function = std::make_unique<ModelController>(state_);
        function_ = function.get();
        controller_ = std::make_unique<Controller>(std::move(function), options, "vfio:x");
        BlockIoOptions io;
        io.reread_buffer_bytes = 0;
        io_ = std::make_unique<BlockIo>(std::make_unique<ModelDevice>(*controller_, polls), io, "vfio:x",
                                        std::make_shared<IoStats>());
    }
    void TearDown() override {
        io_.reset();
        controller_.reset();
        EXPECT_EQ(state_.faults, 0u) << "the controller reached for memory that it was not given";
        if (function_) {
            EXPECT_GE(state_.closed, 1u);
        }
    }
    void WriteAndReadBack(uint64_t offset, size_t length, size_t shift = 0) {
        const auto data = Pattern(length + shift, static_cast<uint32_t>(offset + length));
        std::vector<char> back(length + shift);
        io_->Write(offset, data.data() + shift, length);
        EXPECT_EQ(memcmp(&state_.medium[offset], data.data() + shift, length), 0);
        io_->Read(offset, back.data() + shift, length);
        EXPECT_EQ(memcmp(back.data() + shift, data.data() + shift, length), 0);
    }
    std::string FailedRead() {
        std::vector<char> data(4096);
        const Error error = CatchError([&] { io_->Read(8192, data.data(), data.size()); });
        EXPECT_EQ(error.Code(), ErrorCode::IO);
        const std::string message = error.what();
        EXPECT_NE(message.find("vfio:x: read of 4096 bytes at byte offset 8192 (LBA 16 to 23) failed: "),
                  std::string::npos)
            << message;
        return message;
    }
    //! The message names the cause, the last in a series that ends at once.
    void ExpectDead(const std::string &cause) {
        const std::string message = FailedRead();
        EXPECT_NE(message.find(cause), std::string::npos) << message;
        EXPECT_NE(controller_->Dead().find(cause), std::string::npos) << controller_->Dead();
        EXPECT_NE(FailedRead().find(cause), std::string::npos);
        const Error error = CatchError([&] { io_->Flush(); });
        EXPECT_NE(std::string(error.what()).find(cause), std::string::npos) << error.what();
        EXPECT_GE(state_.closed, 1u) << "the kernel gets the function back at once";
    }

    ModelState state_;
    uint64_t silence_ms_ = 0, admin_timeout_ms_ = 1000;
    std::unique_ptr<Controller> controller_;
    std::unique_ptr<BlockIo> io_;
    ModelController *function_ = nullptr;
};

TEST_F(ControllerTest, TransfersOfEveryLengthThroughBlocksAndLists) {
    for (const bool sgl : {true, false}) {
        state_.sgl = sgl;
        Start();
        EXPECT_EQ(controller_->MaxTransferBytes(), 128 * KIB);
        for (const size_t length : {512u, 4096u, 8192u, 131072u, 1000448u}) {
            for (const size_t shift : {0u, 1u, 512u}) {
                WriteAndReadBack(512, length, shift);
            }
        }
        io_->Flush();
        EXPECT_GT(sgl ? state_.blocks : state_.lists, 0u);
        EXPECT_EQ(sgl ? state_.lists : state_.blocks, 0u);
        state_.lists = state_.blocks = 0;
        TearDown();
    }
    EXPECT_EQ(state_.shutdowns, 2u);
}

TEST_F(ControllerTest, RegisteredMemoryIsTransferredInPlace) {
    Start();
    DmaMemory memory(controller_->Memory(), 64 * KIB, "x");
    io_->Write(0, memory.Data() + 4, 32 * KIB);
    EXPECT_EQ(io_->Stats().Snapshot(IoOperation::WRITE).bounce_bytes, 0u);
    std::vector<char> other(32 * KIB);
    io_->Write(0, other.data(), other.size());
    EXPECT_EQ(io_->Stats().Snapshot(IoOperation::WRITE).bounce_bytes, 32 * KIB);
}

TEST_F(ControllerTest, ManyThreadsShareFewLanes) {
    for (const bool polls : {false, true}) {
        for (const bool shadow : {false, true}) {
            state_.shadow_doorbells = shadow;
            Start(polls);
            std::vector<std::thread> threads;
            for (uint64_t t = 0; t < 24; t++) {
                threads.emplace_back([&, t] {
                    for (int round = 0; round < 20; round++) {
                        WriteAndReadBack(t * 128 * KIB, 64 * KIB, static_cast<size_t>(round % 2));
                    }
                });
            }
            for (auto &thread : threads) {
                thread.join();
            }
            EXPECT_EQ(controller_->Recoveries(), 0u);
            TearDown();
        }
    }
}

//! What may be locked suffices for one slab of buffers, which is less than one for each thread.
TEST_F(ControllerTest, ThreadsWaitForBuffersThatOthersHave) {
    Start();
    constexpr size_t QUEUES = 3 + 3; // and their surroundings
    state_.mappings_max = QUEUES + 1;
    std::atomic<uint64_t> begun{0};
    constexpr uint64_t THREADS = 24;
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < THREADS; t++) {
        threads.emplace_back([&, t] {
            for (int round = 0; round < 20; round++) {
                EXPECT_NO_THROW(WriteAndReadBack(t * 128 * KIB, 128 * KIB));
                begun += round == 0 ? 1 : 0;
                while (begun < THREADS) { // each has had some, and sleeps with what it has kept
                    std::this_thread::yield();
                }
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(controller_->Recoveries(), 0u);
}

TEST_F(ControllerTest, WithoutAnyBufferThereIsNothingToWaitFor) {
    Start();
    state_.mappings_max = 0;
    DmaMemory *none = nullptr;
    EXPECT_EQ(CatchError([&] { none = new DmaMemory(controller_->Memory(), 4096, "x"); }).Code(),
              ErrorCode::IO);
    EXPECT_EQ(none, nullptr);
    state_.mappings_max = 4; // a queue, and nothing for copies
    EXPECT_NE(FailedRead().find("limit of locked memory"), std::string::npos);
}

TEST_F(ControllerTest, WithoutInterruptsThreadsLookAgain) {
    state_.interrupts_max = 0;
    Start();
    EXPECT_FALSE(controller_->HasInterrupts());
    WriteAndReadBack(0, MIB);
}

TEST_F(ControllerTest, AMediaErrorIsNamed) {
    Start();
    state_.status_of_lba[18] = 0x281;
    EXPECT_NE(FailedRead().find("unrecovered read error"), std::string::npos);
    WriteAndReadBack(64 * KIB, 4096);
    EXPECT_EQ(controller_->Recoveries(), 0u);
}

//! The first attempt is held for ever. Afterwards commands are carried out again.
TEST_F(ControllerTest, ACommandThatTakesTooLongIsSentAgainAfterTheControllerWasDisabled) {
    Start();
    WriteAndReadBack(0, 4096);
    state_.holds = true;
    std::thread release([&] {
        while (controller_->Recoveries() == 0) {
            std::this_thread::yield();
        }
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.holds = false;
    });
    WriteAndReadBack(64 * KIB, 300 * KIB);
    release.join();
    EXPECT_EQ(controller_->Dead(), "");
    EXPECT_GE(controller_->Recoveries(), 1u);
    EXPECT_EQ(state_.resets, 0u);
}

//! A volume takes no more writes after a Flush that failed.
TEST_F(ControllerTest, AFlushAmidAResetIsSentAgain) {
    Start();
    WriteAndReadBack(0, 4096);
    state_.holds = true;
    std::thread flush([&] { EXPECT_NO_THROW(io_->Flush()); });
    while (function_->Held() == 0) {
        std::this_thread::yield();
    }
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.holds = false;
        state_.is_reset = true;
    }
    flush.join();
    EXPECT_EQ(controller_->Recoveries(), 1u);
}

TEST_F(ControllerTest, OneCommandThatIsStuckWhileOthersCompleteIsNoticed) {
    Start();
    WriteAndReadBack(0, 4096);
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.held_lba = 2048;
    }
    std::atomic<bool> over{false};
    std::vector<std::thread> others;
    for (uint64_t t = 1; t <= 6; t++) { // on every lane
        others.emplace_back([&, t] {
            while (!over) {
                WriteAndReadBack(t * 128 * KIB, 64 * KIB);
            }
        });
    }
    WriteAndReadBack(2048 * ModelState::LBA_BYTES, 4096);
    over = true;
    for (auto &other : others) {
        other.join();
    }
    EXPECT_GE(controller_->Recoveries(), 1u);
}

TEST_F(ControllerTest, ACommandThatAlwaysTakesTooLongFailsAndLeavesNothingBehind) {
    Start();
    state_.holds = true;
    EXPECT_NE(FailedRead().find("did not complete a command in time"), std::string::npos);
    EXPECT_EQ(controller_->Recoveries(), 3u) << "one for each attempt";
    EXPECT_EQ(function_->Held(), 0u);
    function_->Release(); // nothing that could still land
    state_.holds = false;
    WriteAndReadBack(0, 64 * KIB);
}

TEST_F(ControllerTest, AControllerThatCannotBeDisabledIsReset) {
    Start();
    WriteAndReadBack(0, 4096);
    state_.holds = state_.ignores_disable = true;
    EXPECT_NE(FailedRead().find("in time"), std::string::npos);
    EXPECT_EQ(state_.resets, 3u);
    EXPECT_EQ(state_.cut_off, 0u);
    state_.holds = state_.ignores_disable = false;
    WriteAndReadBack(0, 4096);
}

//! The canary: the command that was held is carried out after its buffer has gone back.
TEST_F(ControllerTest, AControllerThatCannotBeResetIsCutOffBeforeBuffersGoBack) {
    Start();
    WriteAndReadBack(8192, 4096);
    state_.holds = state_.ignores_disable = state_.ignores_reset = true;
    ExpectDead("cut off from memory");
    EXPECT_EQ(state_.cut_off, 1u);
    EXPECT_GT(function_->Held(), 0u);
    function_->Release();
    EXPECT_GT(state_.faults, 0u) << "its transfers must hit nothing";
    state_.faults = 0;
}

TEST_F(ControllerTest, ALostLinkReadsAsZerosOrNotAtAll) {
    for (const bool zeros : {true, false}) {
        Start();
        WriteAndReadBack(0, 4096);
        state_.holds = true;
        (zeros ? state_.reads_zero : state_.absent) = true;
        ExpectDead(zeros ? "its link is lost" : "has left the bus");
        EXPECT_GE(state_.cut_off, 1u);
        state_.reads_zero = state_.absent = state_.holds = false;
        TearDown();
    }
}

TEST_F(ControllerTest, AResetByOthersIsWaitedFor) {
    silence_ms_ = 10000;
    Start();
    const auto set_absent = [&](bool absent) {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.absent = absent;
    };
    set_absent(true);
    std::thread others([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        set_absent(false);
        function_->Reset();
    });
    controller_->CheckHealth();
    others.join();
    EXPECT_EQ(controller_->Dead(), "");
    EXPECT_EQ(state_.cut_off, 0u);
    WriteAndReadBack(0, 64 * KIB);
}

TEST_F(ControllerTest, AFatalStatusIsCuredByANewStart) {
    Start();
    WriteAndReadBack(0, 4096);
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.fatal = true;
    }
    controller_->CheckHealth();
    EXPECT_EQ(controller_->Recoveries(), 1u);
    EXPECT_EQ(state_.enabled, 2u);
    WriteAndReadBack(0, 64 * KIB);
}

TEST_F(ControllerTest, AControllerThatDoesNotComeBackIsDead) {
    Start();
    WriteAndReadBack(0, 4096);
    state_.holds = state_.starts_never = true;
    ExpectDead("does not become ready");
    EXPECT_EQ(state_.cut_off, 1u);
}

TEST_F(ControllerTest, ACompletionOfNothingIsACauseToRecover) {
    Start();
    WriteAndReadBack(0, 4096);
    state_.wrong_identifier = true;
    WriteAndReadBack(64 * KIB, 4096);
    EXPECT_EQ(controller_->Recoveries(), 1u);
}

TEST_F(ControllerTest, AnIdleControllerIsGivenBackWhenTheKernelWantsIt) {
    state_.removal = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    Start();
    WriteAndReadBack(0, 4096);
    eventfd_write(state_.removal, 1);
    for (int i = 0; i < 1000 && controller_->Dead().empty(); i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ExpectDead("the kernel wants the device back");
    close(state_.removal);
}

//! They have no buffers for copies yet, and a controller that is dead takes no memory for more.
TEST_F(ControllerTest, ThreadsThatComeToADeadControllerAreToldTheCause) {
    Start();
    DmaMemory memory(controller_->Memory(), 4096, "x");
    io_->Write(0, memory.Data(), 4096); // in place
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.absent = true;
    }
    controller_->CheckHealth();
    ExpectDead("has left the bus");
    std::vector<char> data(4096);
    const Error write = CatchError([&] { io_->Write(0, data.data(), data.size()); });
    EXPECT_NE(std::string(write.what()).find("has left the bus"), std::string::npos) << write.what();
    nvme_passthru_cmd64 deallocate = {};
    deallocate.opcode = 9;
    deallocate.addr = reinterpret_cast<uintptr_t>(data.data());
    deallocate.data_len = static_cast<uint32_t>(data.size());
    const Error error = CatchError([&] { controller_->Run(NvmeQueueKind::IO, deallocate); });
    EXPECT_NE(std::string(error.what()).find("has left the bus"), std::string::npos) << error.what();
}

TEST_F(ControllerTest, WhatCannotBeStartedIsRefused) {
    state_.starts_never = true;
    const Error error = CatchError([&] { Start(); });
    EXPECT_EQ(error.Code(), ErrorCode::IO);
    EXPECT_NE(std::string(error.what()).find("does not become ready"), std::string::npos) << error.what();
    function_ = nullptr;
}

} // namespace
} // namespace rawduck
