//! The vfio engine's controller on a model that has less than is asked for: queues, memory, doorbells, interrupts, answers.
#include "io/engine/vfio/model_controller.hpp"
#include "io/engine/vfio/vfio_queue.hpp"
#include "support/test_support.hpp"

#include <chrono>
#include <cstring>
#include <sys/eventfd.h>
#include <thread>

namespace rawduck {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint32_t PIECE = 4096;
constexpr uint64_t HOUR_MS = 3600000;

class ShortageTest : public ::testing::Test {
  protected:
    void Start() {
        auto function = std::make_unique<ModelController>(state_);
        function_ = function.get();
        controller_ = std::make_unique<Controller>(std::move(function), options_, "vfio:x");
    }
    void TearDown() override {
        queues_.clear();
        controller_.reset();
        EXPECT_EQ(state_.faults, 0u) << "the controller reached for memory that it was not given";
    }
    //! Each of a thread that is busy with it.
    VfioQueue &Occupy(bool polls = false) {
        queues_.push_back(std::make_unique<VfioQueue>(*controller_, 1, ModelState::LBA_BYTES, 4, polls));
        return *queues_.back();
    }
    int Flush() {
        nvme_passthru_cmd64 flush = {};
        return controller_->Run(NvmeQueueKind::IO, flush);
    }
    int Identify() {
        std::vector<char> page(PIECE);
        nvme_passthru_cmd64 identify = {};
        identify.opcode = 6;
        identify.addr = reinterpret_cast<uintptr_t>(page.data());
        identify.data_len = PIECE;
        return controller_->Run(NvmeQueueKind::ADMIN, identify);
    }
    void WaitUntilHeld(uint64_t commands) {
        const auto held = [&] {
            std::lock_guard<std::mutex> guard(state_.mutex);
            return state_.ever_held >= commands;
        };
        while (!held()) {
            std::this_thread::yield();
        }
    }

    ModelState state_;
    ControllerOptions options_;
    ModelController *function_ = nullptr;
    std::unique_ptr<Controller> controller_;
    std::vector<std::unique_ptr<VfioQueue>> queues_;
};

//! One that fails is final for a volume, and this one was never sent.
TEST_F(ShortageTest, AFlushSharesALaneWhenTheControllerMakesNoMore) {
    options_.lanes_max = 4;
    state_.submission_queues_max = 1;
    Start();
    Occupy();
    EXPECT_EQ(Flush(), 0);
    Occupy();
    Occupy(true);
    EXPECT_EQ(Flush(), 0);
    EXPECT_EQ(controller_->Recoveries(), 0u) << "others have commands in flight";
    EXPECT_EQ(function_->CompletionQueues(), 1u) << "nobody knows of the others any more";
    EXPECT_EQ(state_.deleted, 1u) << "it is not asked again each time";
}

TEST_F(ShortageTest, ACompletionQueueThatCannotBeDeletedGoesWithAReset) {
    options_.lanes_max = 4;
    state_.submission_queues_max = 1;
    state_.refuses_deletion = true;
    Start();
    Occupy();
    EXPECT_EQ(Flush(), 0);
    EXPECT_EQ(controller_->Recoveries(), 1u);
    EXPECT_EQ(function_->CompletionQueues(), 1u);
}

TEST_F(ShortageTest, AFlushSharesALaneWhenNoMoreMemoryMayBeLocked) {
    options_.lanes_max = 4;
    Start();
    Occupy();
    state_.mappings_max = 0;
    EXPECT_EQ(Flush(), 0);
    EXPECT_EQ(controller_->Recoveries(), 0u);
    EXPECT_EQ(function_->CompletionQueues(), 1u);
}

TEST_F(ShortageTest, WithoutAnyLaneTheCauseIsTold) {
    state_.submission_queues_max = 0;
    Start();
    const Error error = CatchError([&] { Flush(); });
    EXPECT_NE(std::string(error.what()).find("Create I/O Submission Queue failed"), std::string::npos)
        << error.what();
    EXPECT_EQ(function_->CompletionQueues(), 0u);
    state_.submission_queues_max = 1;
    EXPECT_EQ(Flush(), 0) << "nothing of the failure is left";
}

//! The lane has one slot, which others fill.
TEST_F(ShortageTest, WhoeverMakesRoomForOthersSendsHisOwnFirst) {
    options_.lanes_max = 1;
    options_.entries_max = 2;
    Start();
    DmaMemory memory(controller_->Memory(), 2 * PIECE, "x");
    memset(memory.Data(), 'a', 2 * PIECE);
    Command first, second, *completed = nullptr;
    first.length = second.length = PIECE;
    first.data = memory.Data();
    second.data = memory.Data() + PIECE;
    second.opcode = Opcode::WRITE;
    second.device_offset = PIECE;
    VfioQueue &other = Occupy(), &own = Occupy();
    state_.holds = true;
    ASSERT_TRUE(other.Submit(first));
    ASSERT_EQ(other.Reap(&completed, 1, false), 0u);
    ASSERT_TRUE(own.Submit(second));
    ASSERT_EQ(own.Reap(&completed, 1, false), 0u);
    EXPECT_EQ(function_->Held(), 1u) << "there is no room";
    state_.holds = false;
    function_->Release();
    EXPECT_EQ(own.Reap(&completed, 1, false), 0u) << "the completion is the other's";
    EXPECT_EQ(state_.medium[PIECE], 'a') << "it was not sent with the room that it made";
    EXPECT_EQ(other.Reap(&completed, 1, true), 1u);
    EXPECT_EQ(own.Reap(&completed, 1, true), 1u);
}

TEST_F(ShortageTest, AControllerThatRefusesDoorbellsInMemoryDoesWithout) {
    state_.refuses_shadow_doorbells = true;
    Start();
    EXPECT_EQ(Flush(), 0);
    state_.refuses_shadow_doorbells = false;
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.fatal = true;
    }
    controller_->CheckHealth();
    EXPECT_EQ(controller_->Dead(), "");
    EXPECT_EQ(Flush(), 0);
    state_.refuses_shadow_doorbells = true;
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.fatal = true;
    }
    controller_->CheckHealth();
    EXPECT_EQ(controller_->Dead(), "") << "what it had before is not used any more";
    EXPECT_EQ(Flush(), 0);
}

//! Whoever slept on an interrupt that does not come any more would find each completion only when its slice is over.
TEST_F(ShortageTest, InterruptsThatAreLostInARecoveryAreNotWaitedFor) {
    constexpr int FLUSHES = 10;
    Start();
    EXPECT_EQ(Flush(), 0);
    state_.interrupts_max = 0;
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.is_reset = true;
    }
    controller_->CheckHealth();
    state_.holds = true;
    auto fastest = steady_clock::duration::max(); // of all: a busy machine makes some of them slow
    for (int i = 1; i <= FLUSHES; i++) {
        const auto start = steady_clock::now();
        std::thread flush([&] { EXPECT_EQ(Flush(), 0); });
        WaitUntilHeld(static_cast<uint64_t>(i));
        function_->Release();
        flush.join();
        fastest = std::min(fastest, steady_clock::now() - start);
    }
    EXPECT_LT(fastest, milliseconds(QueueLane::SLICE_MS / 2));
}

//! As on machines where the kernel's driver waits for hours for its data.
TEST_F(ShortageTest, AdministrationIsNotWaitedForAsLongAsData) {
    options_.command_timeout_ms = HOUR_MS;
    options_.admin_timeout_ms = 50;
    Start();
    state_.holds_administration = 1;
    EXPECT_EQ(Identify(), 0);
    EXPECT_EQ(controller_->Recoveries(), 1u);
}

TEST_F(ShortageTest, AdministrationEndsWhenTheKernelWantsTheDeviceBack) {
    options_.command_timeout_ms = options_.admin_timeout_ms = HOUR_MS;
    options_.silence_ms = 0;
    state_.removal = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    Start();
    state_.holds_administration = 1;
    std::thread asking([&] { EXPECT_EQ(Identify(), STATUS_HOST_PATH_ERROR_FINAL); });
    WaitUntilHeld(1);
    eventfd_write(state_.removal, 1);
    asking.join();
    EXPECT_NE(controller_->Dead().find("the kernel wants the device back"), std::string::npos)
        << controller_->Dead();
    EXPECT_GE(state_.closed, 1u) << "the kernel gets the function back";
    controller_.reset();
    close(state_.removal);
}

TEST_F(ShortageTest, AdministrationEndsWhenTheDeviceHasLeftTheBus) {
    options_.command_timeout_ms = options_.admin_timeout_ms = HOUR_MS;
    options_.silence_ms = 0;
    Start();
    state_.holds_administration = 1;
    std::thread asking([&] { EXPECT_EQ(Identify(), STATUS_HOST_PATH_ERROR_FINAL); });
    WaitUntilHeld(1);
    {
        std::lock_guard<std::mutex> guard(state_.mutex);
        state_.reads_ones = true;
    }
    asking.join();
    EXPECT_NE(controller_->Dead().find("has left the bus"), std::string::npos) << controller_->Dead();
}

} // namespace
} // namespace rawduck
