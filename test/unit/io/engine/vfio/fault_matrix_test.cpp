//! Each way in which a controller fails, in each state that a command can be in: what becomes of the command, and
//! that nothing is transferred to or from its memory once it has ended. The test prints the table.
#include "io/engine/vfio/model_controller.hpp"
#include "io/engine/vfio/vfio_queue.hpp"
#include "support/test_support.hpp"

#include <cstring>
#include <functional>
#include <sys/eventfd.h>
#include <thread>

namespace rawduck {
namespace {

//! Of commands, where one is waited for and where none is.
constexpr uint64_t SHORT_MS = 20, LONG_MS = 500;
constexpr uint32_t LENGTH = 4096;

enum class CommandState { WAITING, TAKEN, CARRIED_OUT, HANDED_OUT, FLUSH, ADMINISTRATION };
constexpr const char *STATE_NAMES[] = {
    "waits for its turn", "with the controller", "carried out", "handed out", "Flush", "administration"};

//! A command ends in one of these ways.
constexpr const char *DONE = "done";   //!< and its data is where it belongs
constexpr const char *AGAIN = "again"; //!< with 371h, to be sent again: those that a thread waits for were
constexpr const char *FAILS = "fails"; //!< with 370h and the cause

struct Event {
    const char *name;
    bool waits;                                //!< is noticed when a command is overdue
    std::function<void(ModelState &)> happens; //!< with the model's mutex held
    const char *outcomes[6];                   //!< by CommandState
};

const std::vector<Event> &Events() {
    using State = ModelState;
    // What was carried out is found in the ring when nothing but time has passed, and sent again after a new start.
    static const auto &events = *new const std::vector<Event>{
        {"time-out, disabled", true, [](State &) {}, {DONE, AGAIN, DONE, DONE, DONE, DONE}},
        {"time-out, reset",
         true,
         [](State &state) { state.ignores_disable = true; },
         {DONE, AGAIN, DONE, DONE, DONE, DONE}},
        {"time-out, cut off",
         true,
         [](State &state) { state.ignores_disable = state.ignores_reset = true; },
         {FAILS, FAILS, DONE, DONE, FAILS, FAILS}},
        {"fatal status",
         false,
         [](State &state) { state.fatal = true; },
         {DONE, AGAIN, AGAIN, DONE, DONE, DONE}},
        {"fatal, starts never",
         false,
         [](State &state) { state.fatal = state.starts_never = true; },
         {FAILS, FAILS, FAILS, DONE, FAILS, FAILS}},
        {"link lost, reads 0",
         false,
         [](State &state) { state.reads_zero = true; },
         {FAILS, FAILS, FAILS, DONE, FAILS, FAILS}},
        {"link lost, no answer",
         false,
         [](State &state) { state.absent = true; },
         {FAILS, FAILS, FAILS, DONE, FAILS, FAILS}},
        {"gone, reads ones",
         false,
         [](State &state) { state.reads_ones = true; },
         {FAILS, FAILS, FAILS, DONE, FAILS, FAILS}},
        {"reset by others",
         false,
         [](State &state) { state.is_reset = true; },
         {DONE, AGAIN, AGAIN, DONE, DONE, DONE}},
        {"removal request",
         false,
         [](State &state) { eventfd_write(state.removal, 1); },
         {FAILS, FAILS, FAILS, DONE, FAILS, FAILS}},
    };
    return events;
}

//! One cell of the table.
class Trial {
  public:
    Trial(const Event &event, CommandState state, Opcode opcode)
        : event_(event), state_(state), opcode_(opcode) {
        model_.removal = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        auto function = std::make_unique<ModelController>(model_);
        function_ = function.get();
        ControllerOptions options;
        options.command_timeout_ms = event.waits ? SHORT_MS : LONG_MS;
        options.admin_timeout_ms = 2 * options.command_timeout_ms;
        options.silence_ms = 0;
        options.lanes_max = 1;
        controller_ = std::make_unique<Controller>(std::move(function), options, "vfio:x");
        queue_ = NewQueue();
        other_ = NewQueue();
        memory_ = std::make_unique<DmaMemory>(controller_->Memory(), LENGTH, "x");
        memset(memory_->Data(), 'a', LENGTH);
        memset(model_.medium.data(), opcode == Opcode::READ ? 'm' : 0, LENGTH);
        command_ = MakeCommand(opcode, 0, memory_->Data());
    }
    ~Trial() {
        if (thread_.joinable()) {
            thread_.join();
        }
        queue_.reset();
        other_.reset();
        memory_.reset();
        controller_.reset();
        close(model_.removal);
    }
    Trial(const Trial &) = delete;
    Trial &operator=(const Trial &) = delete;

    std::string Run() {
        if (event_.waits) { // the time may be out before all is prepared
            Happen();
            Prepare();
            std::this_thread::sleep_for(std::chrono::milliseconds(2 * SHORT_MS));
        } else {
            Prepare();
            Happen();
        }
        controller_->CheckHealth();
        Lift();
        const std::string outcome = thread_.joinable() ? OutcomeOfThread() : OutcomeOfCommand();
        ExpectNothingLands(outcome);
        ExpectTheRestWorks();
        return outcome;
    }

  private:
    static Command MakeCommand(Opcode opcode, uint64_t offset, char *data) {
        Command command;
        command.opcode = opcode;
        command.length = LENGTH;
        command.device_offset = offset;
        command.data = data;
        return command;
    }
    std::unique_ptr<VfioQueue> NewQueue() {
        return std::make_unique<VfioQueue>(*controller_, 1, ModelState::LBA_BYTES, 4, false);
    }
    void Send(VfioQueue &queue, Command &command) {
        Command *completed = nullptr;
        ASSERT_TRUE(queue.Submit(command));
        ASSERT_EQ(queue.Reap(&completed, 1, false), 0u);
    }
    void Hold(bool holds) {
        std::lock_guard<std::mutex> guard(model_.mutex);
        model_.holds = holds;
    }
    void Happen() {
        std::lock_guard<std::mutex> guard(model_.mutex);
        event_.happens(model_);
    }
    void WaitUntilHeld() {
        const auto ever = [this] {
            std::lock_guard<std::mutex> guard(model_.mutex);
            return model_.ever_held > 0;
        };
        while (!ever()) {
            std::this_thread::yield();
        }
    }

    void Prepare() {
        Hold(true);
        switch (state_) {
        case CommandState::WAITING:
            // Another one is with the controller, so that something can be overdue.
            blocker_ = MakeCommand(Opcode::READ, LENGTH, memory_->Data());
            Send(*other_, blocker_);
            ASSERT_TRUE(queue_->Submit(command_));
            break;
        case CommandState::TAKEN:
            Send(*queue_, command_);
            break;
        case CommandState::CARRIED_OUT:
            Send(*queue_, command_);
            function_->Release();
            break;
        case CommandState::HANDED_OUT: {
            Send(*queue_, command_);
            function_->Release();
            Command *completed = nullptr;
            ASSERT_EQ(other_->Reap(&completed, 1, false), 0u); // it delivers for both
            break;
        }
        case CommandState::FLUSH:
            thread_ = std::thread([this] {
                nvme_passthru_cmd64 flush = {};
                status_ = controller_->Run(NvmeQueueKind::IO, flush);
            });
            WaitUntilHeld();
            Hold(false); // it stays with the controller, and is carried out when it is sent again
            break;
        case CommandState::ADMINISTRATION: {
            std::lock_guard<std::mutex> guard(model_.mutex);
            model_.holds_administration = 1;
        }
            thread_ = std::thread([this] {
                nvme_passthru_cmd64 identify = {};
                identify.opcode = 6;
                std::vector<char> page(LENGTH);
                identify.addr = reinterpret_cast<uintptr_t>(page.data());
                identify.data_len = LENGTH;
                status_ = controller_->Run(NvmeQueueKind::ADMIN, identify);
            });
            WaitUntilHeld();
            break;
        }
    }
    //! The controller works again, if it can be started.
    void Lift() {
        std::lock_guard<std::mutex> guard(model_.mutex);
        model_.holds = false;
        model_.ignores_disable = false;
    }
    std::string OutcomeOfThread() {
        thread_.join();
        return status_ == 0                              ? DONE
               : status_ == STATUS_HOST_PATH_ERROR_FINAL ? FAILS
                                                         : std::to_string(status_);
    }
    std::string OutcomeOfCommand() {
        Command *completed = nullptr;
        if (blocker_.length > 0) {
            EXPECT_EQ(other_->Reap(&completed, 1, true), 1u);
        }
        EXPECT_EQ(queue_->Reap(&completed, 1, true), 1u);
        if (command_.result == LENGTH) {
            const char *data = opcode_ == Opcode::READ ? memory_->Data() : model_.medium.data();
            EXPECT_EQ(std::string(data, LENGTH), std::string(LENGTH, opcode_ == Opcode::READ ? 'm' : 'a'));
            return DONE;
        }
        EXPECT_NE(command_.cause, nullptr);
        return command_.nvme_status == STATUS_ABORTED_BY_HOST         ? AGAIN
               : command_.nvme_status == STATUS_HOST_PATH_ERROR_FINAL ? FAILS
                                                                      : std::to_string(command_.nvme_status);
    }
    //! What the controller still holds is carried out now: its owner has put something else there.
    void ExpectNothingLands(const std::string &outcome) {
        const uint64_t faults = model_.faults;
        memset(memory_->Data(), 'z', LENGTH);
        const size_t held = function_->Held();
        function_->Release();
        EXPECT_EQ(std::string(memory_->Data(), LENGTH), std::string(LENGTH, 'z'));
        EXPECT_EQ(std::count(model_.medium.begin(), model_.medium.end(), 'z'), 0);
        if (held > 0) {
            EXPECT_GT(model_.faults, faults) << "only a controller that is cut off may still hold commands";
            EXPECT_EQ(outcome, FAILS);
        } else {
            EXPECT_EQ(model_.faults, 0u);
        }
    }
    void ExpectTheRestWorks() {
        auto queue = NewQueue();
        Command next = MakeCommand(Opcode::WRITE, 2 * LENGTH, memory_->Data()), *completed = nullptr;
        ASSERT_TRUE(queue->Submit(next));
        ASSERT_EQ(queue->Reap(&completed, 1, true), 1u);
        const bool dead = !controller_->Dead().empty();
        EXPECT_EQ(next.nvme_status, dead ? STATUS_HOST_PATH_ERROR_FINAL : 0);
        EXPECT_EQ(next.cause != nullptr, dead);
        EXPECT_EQ(model_.closed > 0, dead) << "the kernel gets the function back at once, and no sooner";
    }

    const Event &event_;
    const CommandState state_;
    const Opcode opcode_;
    ModelState model_;
    ModelController *function_ = nullptr;
    std::unique_ptr<Controller> controller_;
    std::unique_ptr<VfioQueue> queue_, other_;
    std::unique_ptr<DmaMemory> memory_;
    Command command_, blocker_;
    std::thread thread_;
    int status_ = 0;
};

TEST(FaultMatrixTest, WhatBecomesOfACommand) {
    std::printf("%-22s", "");
    for (const char *name : STATE_NAMES) {
        std::printf("%-21s", name);
    }
    std::printf("\n");
    for (const Event &event : Events()) {
        // Most of the time they wait.
        std::string outcomes[std::size(STATE_NAMES)][2];
        std::vector<std::thread> trials;
        for (size_t state = 0; state < std::size(STATE_NAMES); state++) {
            for (const Opcode opcode : {Opcode::READ, Opcode::WRITE}) {
                trials.emplace_back(
                    [&event, state, opcode, &outcome = outcomes[state][opcode == Opcode::READ]] {
                        SCOPED_TRACE(std::string(event.name) + ", " + STATE_NAMES[state]);
                        outcome = Trial(event, static_cast<CommandState>(state), opcode).Run();
                        EXPECT_EQ(outcome, event.outcomes[state]);
                    });
            }
        }
        std::printf("%-22s", event.name);
        for (auto &trial : trials) {
            trial.join();
        }
        for (const auto &outcome : outcomes) {
            std::printf("%-21s", outcome[0].c_str());
        }
        std::printf("\n");
    }
}

} // namespace
} // namespace rawduck
