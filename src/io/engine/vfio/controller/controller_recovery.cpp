//! What Controller does when its device does not answer: see the diagram in controller.hpp.
#include "io/engine/vfio/controller/controller.hpp"

#include "common/clock.hpp"
#include "common/invariant.hpp"

#include <chrono>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

namespace rawduck {
namespace {

constexpr uint64_t SHUTDOWN_TIMEOUT_MS = 5000;
constexpr int START_ATTEMPTS = 3, SILENCE_LOOK_MS = 20;

bool IsReadable(int fd) {
    pollfd waiting = {fd, POLLIN, 0};
    return fd >= 0 && poll(&waiting, 1, 0) == 1;
}

} // namespace

bool Controller::RemovalRequested() const {
    return IsReadable(function_->RemovalDescriptor());
}

bool Controller::IsOverdue() {
    const uint64_t now = MonotonicNs(), timeout_ns = options_.command_timeout_ms * 1000000;
    for (QueueLane &lane : lanes_) {
        std::lock_guard<std::mutex> guard(lane.Mutex());
        const uint64_t oldest = lane.Pair().OldestNs();
        // What is complete and was not looked at counts as answered. The next look is not far.
        if (oldest < now && now - oldest > timeout_ns && !lane.Pair().HasCompletion()) {
            return true;
        }
    }
    return false;
}

//! Null when there is none.
const char *Controller::FindFailure() {
    if (RemovalRequested()) {
        return "the kernel wants the device back: it is being removed, or taken from this process";
    }
    const auto status = function_->Read32(REGISTER_CSTS);
    if (!status || *status == REGISTER_GONE) {
        return "the controller has left the bus: its registers cannot be read";
    }
    if ((*status & CSTS_FATAL) != 0) {
        return "the controller reports that it has failed (CSTS.CFS)";
    }
    if ((*status & CSTS_READY) == 0) {
        return "the controller is not ready any more: it was reset, or its link is lost";
    }
    for (QueueLane &lane : lanes_) {
        std::lock_guard<std::mutex> guard(lane.Mutex());
        if (lane.Violated()) {
            return "the controller completed a command that it was not given";
        }
    }
    return IsOverdue() ? "the controller did not complete a command in time" : nullptr;
}

void Controller::CheckHealth() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!dead_.empty()) {
        return;
    }
    if (const char *cause = FindFailure()) {
        Recover(cause);
    }
}

Controller::LaneLocks Controller::LockLanes() {
    LaneLocks locks;
    for (QueueLane &lane : lanes_) {
        locks.emplace_back(lane.Mutex());
    }
    return locks;
}

bool Controller::IsQuiet() {
    return WaitUntil(CSTS_READY, 0, 0) && SameController();
}

bool Controller::Disable() {
    const auto configuration = function_->Read32(REGISTER_CC);
    return configuration && SameController() &&
           function_->Write32(REGISTER_CC, *configuration & ~(CC_ENABLE | CC_SHUTDOWN_MASK)) &&
           WaitUntil(CSTS_READY, 0, capabilities_.ReadyTimeoutMs()) && IsQuiet();
}

//! Returns when the controller cannot transfer anything any more. A register that reads as zero may mean a lost
//! link, behind which a device may still work: only what is known not to change tells that it is ours.
Controller::Quiet Controller::Quiesce() {
    const uint64_t end = MonotonicNs() + options_.silence_ms * 1000000;
    for (;;) {
        if (Disable()) {
            return Quiet::DISABLED;
        }
        if (function_->Reset() && IsQuiet()) {
            return Quiet::RESET;
        }
        // While somebody else resets it, it does not answer, and nobody may reset it again.
        if (MonotonicNs() >= end || RemovalRequested()) {
            memory_.Abandon();
            return Quiet::CUT_OFF;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(SILENCE_LOOK_MS));
    }
}

//! What Quiesce has made of it. Several attempts: whoever resets it may do so in the middle of one.
std::string Controller::StartAgain(Quiet quiet) {
    std::string problem;
    for (int attempt = 0; attempt < START_ATTEMPTS; attempt++) {
        if (quiet == Quiet::CUT_OFF) {
            return problem.empty() ? "it could be neither disabled nor reset, and was cut off from memory"
                                   : problem;
        }
        std::vector<CommandOwner> administrative; // whoever sent these has given up on them
        admin_->TakeBack(administrative);
        problem = Start();
        if (problem.empty()) {
            break;
        }
        quiet = Quiesce();
    }
    return problem;
}

void Controller::Recover(const char *cause) {
    const LaneLocks locks = LockLanes();
    const bool removal = RemovalRequested();
    const Quiet quiet = Quiesce();
    std::vector<CommandOwner> owners;
    for (QueueLane &lane : lanes_) {
        lane.Pair().TakeBack(owners);
    }
    const std::string problem = removal ? "it was given back" : StartAgain(quiet);
    if (!problem.empty()) {
        memory_.Abandon(); // it may have been half started
        dead_ = std::string(cause) + "; " + problem;
        function_->Close();
        for (QueueLane &lane : lanes_) {
            lane.Die(dead_);
        }
    }
    const bool dead = !problem.empty();
    for (const CommandOwner &owner : owners) {
        owner.sink->Complete(owner.command, dead ? STATUS_HOST_PATH_ERROR_FINAL : STATUS_ABORTED_BY_HOST, 0,
                             dead ? dead_.c_str() : cause);
    }
    for (QueueLane &lane : lanes_) {
        lane.WakeAll();
    }
    recoveries_++;
}

//! Nobody waits for an idle controller, but the kernel waits for whoever has it.
void Controller::Watch() {
    pollfd waiting[] = {{function_->RemovalDescriptor(), POLLIN, 0}, {stop_, POLLIN, 0}};
    while (poll(waiting, 2, -1) < 0) {
    }
    if ((waiting[1].revents & POLLIN) == 0) {
        CheckHealth();
    }
}

void Controller::StartWatching() {
    if (function_->RemovalDescriptor() < 0) {
        return;
    }
    stop_ = eventfd(0, EFD_CLOEXEC);
    if (stop_ < 0) {
        return;
    }
    try {
        watcher_ = std::thread([this] { Watch(); });
    } catch (const std::system_error &) {
        // Then it is noticed with the next command that has to wait.
    }
}

Controller::~Controller() {
    if (watcher_.joinable()) {
        eventfd_write(stop_, 1);
        watcher_.join();
    }
    if (stop_ >= 0) {
        close(stop_);
    }
    std::lock_guard<std::mutex> guard(mutex_);
    for (const QueueLane &lane : lanes_) {
        RAWDUCK_INVARIANT(lane.users == 0, "queues are destroyed before their controller");
    }
    if (dead_.empty()) {
        const auto configuration = function_->Read32(REGISTER_CC);
        if (configuration &&
            function_->Write32(REGISTER_CC, (*configuration & ~CC_SHUTDOWN_MASK) | CC_SHUTDOWN_NORMAL)) {
            WaitUntil(CSTS_SHUTDOWN_MASK, CSTS_SHUTDOWN_DONE, SHUTDOWN_TIMEOUT_MS);
        }
        // Its queues lie in memory that goes away with this object.
        Quiesce();
        memory_.Abandon();
        function_->Close();
    }
}

} // namespace rawduck
