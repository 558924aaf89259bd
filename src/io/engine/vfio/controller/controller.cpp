#include "io/engine/vfio/controller/controller.hpp"

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/units.hpp"
#include "io/engine/vfio/dma/data_pointer.hpp"
#include "target/nvme/nvme_status.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace rawduck {
namespace {

SubmissionEntry MakeEntry(const nvme_passthru_cmd64 &command) {
    SubmissionEntry entry = {};
    entry.opcode = command.opcode;
    entry.flags = command.flags;
    entry.namespace_id = command.nsid;
    entry.cdw2 = command.cdw2;
    entry.cdw3 = command.cdw3;
    entry.cdw10 = command.cdw10;
    entry.cdw11 = command.cdw11;
    entry.cdw12 = command.cdw12;
    entry.cdw13 = command.cdw13;
    entry.cdw14 = command.cdw14;
    entry.cdw15 = command.cdw15;
    return entry;
}

//! Between two looks at the controller while commands complete, at most.
constexpr uint64_t HEALTH_LOOK_MS = 1000;
//! Of a command that was in flight while the controller was recovered, as RequestRun sends transfers.
constexpr int ATTEMPTS_MAX = 3;

//! Of a command that a thread waits for.
class WaitingSink final : public CommandSink {
  public:
    void Complete(void *, uint16_t status, uint64_t result, const char *) noexcept override {
        status_ = status;
        result_ = result;
        done_ = true;
    }
    bool IsDone() const { return done_; }
    int Status() const { return status_; }
    uint64_t Result() const { return result_; }

  private:
    bool done_ = false;
    uint16_t status_ = 0;
    uint64_t result_ = 0;
};

//! Whether the data of a command goes to the device (bit 0 of its opcode) or comes from it (bit 1).
bool GoesToDevice(const nvme_passthru_cmd64 &command) {
    return (command.opcode & 1) != 0;
}

void *DataOf(const nvme_passthru_cmd64 &command) {
    return reinterpret_cast<void *>(static_cast<uintptr_t>(command.addr));
}

} // namespace

Controller::Controller(std::unique_ptr<PciFunction> function, const ControllerOptions &options,
                       std::string name)
    : name_(std::move(name)), options_(options), function_(std::move(function)), memory_(*function_) {
    std::lock_guard<std::mutex> guard(mutex_);
    const std::string problem = Start();
    if (!problem.empty()) {
        // What a controller that was half started may still transfer to goes away with this object.
        memory_.Abandon();
        throw Error(ErrorCode::IO, name_ + ": the NVMe controller cannot be started: " + problem +
                                       "; look into the kernel log (dmesg), or give it back (rawduck vfio "
                                       "unbind " +
                                       function_->Address() + ") and try the kernel's driver");
    }
    StartWatching();
}

std::string Controller::Dead() {
    std::lock_guard<std::mutex> guard(mutex_);
    return dead_;
}

//! The one with the fewest users, rather of that kind. There is one.
QueueLane &Controller::SharedLane(bool polls) {
    const auto better = [polls](const QueueLane &left, const QueueLane &right) {
        const bool left_fits = left.Polls() == polls, right_fits = right.Polls() == polls;
        return left_fits != right_fits ? left_fits : left.users < right.users;
    };
    return *std::min_element(lanes_.begin(), lanes_.end(), better);
}

QueueLane &Controller::LaneFor(bool polls) {
    if (!lanes_.empty()) {
        QueueLane &shared = SharedLane(polls);
        const bool is_free = shared.Polls() == polls && shared.users == 0;
        if (is_free || lanes_.size() >= lanes_max_ || !dead_.empty()) {
            return shared;
        }
    }
    try {
        return AddLane(polls);
    } catch (const Error &) {
        if (lanes_.empty()) {
            throw;
        }
    } catch (const std::bad_alloc &) {
        if (lanes_.empty()) {
            throw;
        }
        return SharedLane(polls); // the next one may find memory
    }
    // Whoever needs one for a moment, such as a flush, would ask the controller or the system in vain each time.
    lanes_max_ = static_cast<uint32_t>(lanes_.size());
    return SharedLane(polls);
}

QueueLane &Controller::AddLane(bool polls) {
    const auto id = static_cast<uint16_t>(lanes_.size() + 1);
    std::list<QueueLane> added;
    added.emplace_back(std::make_unique<QueuePair>(*function_, memory_, id, entries_, list_bytes_, name_),
                       polls);
    bool is_clean = true;
    const std::string problem = CreateQueues(added.back(), is_clean);
    if (!problem.empty()) {
        if (!is_clean) {
            // It would go on to use the memory of what it has.
            Recover("a queue could not be made");
        }
        throw Error(ErrorCode::IO, name_ + ": a queue could not be made: " + problem);
    }
    lanes_.splice(lanes_.end(), added);
    return lanes_.back();
}

Error Controller::DeadError(const std::string &cause) const {
    return Error(ErrorCode::IO, name_ + ": no more commands are taken: " + cause);
}

QueueLane &Controller::AcquireLane(bool polls) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!dead_.empty() && lanes_.empty()) {
        throw DeadError(dead_);
    }
    QueueLane &lane = LaneFor(polls);
    lane.users++;
    return lane;
}

void Controller::ReleaseLane(QueueLane &lane) {
    std::lock_guard<std::mutex> guard(mutex_);
    RAWDUCK_INVARIANT(lane.users > 0, "a lane is released once for each queue");
    lane.users--;
}

void Controller::Submit(QueueLane &lane, const nvme_passthru_cmd64 &command, uint64_t iova,
                        const CommandOwner &owner, uint64_t now_ns) {
    SubmissionEntry entry = MakeEntry(command);
    const uint16_t slot = lane.Pair().TakeSlot(owner, now_ns);
    if (command.data_len > 0) {
        // Up to two pages, entries are as good, and every controller takes them.
        if (sgl_ && command.data_len > PAGE_BYTES) {
            SetSgl(entry, iova, command.data_len);
        } else {
            SetPrp(entry, iova, command.data_len, lane.Pair().PrpList(slot), lane.Pair().PrpListIova(slot));
        }
    }
    lane.Pair().Push(entry, slot);
}

void Controller::Wait(QueueLane &lane, std::unique_lock<std::mutex> &lock) {
    const bool came = lane.Wait(lock);
    const uint64_t now = MonotonicNs();
    // One command may be stuck while others complete.
    const bool looked =
        now - lane.checked_ns < std::min(HEALTH_LOOK_MS, options_.command_timeout_ms / 4) * 1000000;
    if (came && looked && !lane.Violated()) {
        return;
    }
    lane.checked_ns = now;
    lock.unlock();
    CheckHealth();
    lock.lock();
}

//! As the kernel's driver does, also with a Flush: a reset of the controller does not lose what its cache holds.
int Controller::Run(NvmeQueueKind kind, nvme_passthru_cmd64 &command) {
    int status = STATUS_ABORTED_BY_HOST;
    for (int attempt = 0; attempt < ATTEMPTS_MAX && status == STATUS_ABORTED_BY_HOST; attempt++) {
        status = kind == NvmeQueueKind::IO ? RunIo(command) : RunAdministrative(command);
    }
    return status;
}

int Controller::RunAdministrative(nvme_passthru_cmd64 &command) {
    std::lock_guard<std::mutex> guard(mutex_);
    const int status = dead_.empty() ? RunAdminWithData(command) : -ENODEV;
    if (status == -ETIMEDOUT) {
        const char *const cause = FindFailure();
        Recover(cause ? cause : "a command for administration was not completed in time");
        return dead_.empty() ? STATUS_ABORTED_BY_HOST : STATUS_HOST_PATH_ERROR_FINAL;
    }
    return status;
}

int Controller::RunAdminWithData(nvme_passthru_cmd64 &command) {
    if (command.data_len > admin_data_->Size()) {
        return -EINVAL;
    }
    SubmissionEntry entry = MakeEntry(command);
    if (command.data_len > 0) {
        memset(admin_data_->Data(), 0, admin_data_->Size());
        if (GoesToDevice(command)) {
            memcpy(admin_data_->Data(), DataOf(command), command.data_len);
        }
        entry.data[0] = admin_data_->Iova();
    }
    uint64_t result = 0;
    const int status = RunAdmin(entry, &result);
    command.result = result;
    if (status == 0 && command.data_len > 0 && !GoesToDevice(command)) {
        memcpy(DataOf(command), admin_data_->Data(), command.data_len);
    }
    return status;
}

//! Memory that is not registered is copied.
int Controller::RunIo(nvme_passthru_cmd64 &command) {
    std::unique_ptr<DmaMemory> copy;
    uint64_t iova = 0;
    if (command.data_len > 0) {
        const auto reached = memory_.Find(DataOf(command), command.data_len);
        if (!reached) {
            copy = std::make_unique<DmaMemory>(memory_, command.data_len, name_);
            memcpy(copy->Data(), DataOf(command), GoesToDevice(command) ? command.data_len : 0);
        }
        iova = reached ? *reached : copy->Iova();
    }
    QueueLane &lane = AcquireLane(false);
    WaitingSink sink;
    std::unique_lock<std::mutex> lock(lane.Mutex());
    while (lane.Dead().empty() && !lane.Pair().HasRoom()) {
        lane.Deliver();
        if (!lane.Pair().HasRoom()) {
            Wait(lane, lock);
        }
    }
    if (!lane.Dead().empty()) {
        const std::string cause = lane.Dead();
        lock.unlock();
        ReleaseLane(lane);
        throw DeadError(cause);
    }
    Submit(lane, command, iova, {&sink, nullptr}, MonotonicNs());
    lane.Pair().Ring();
    while (!sink.IsDone()) {
        lane.Deliver();
        if (!sink.IsDone()) {
            Wait(lane, lock);
        }
    }
    lock.unlock();
    ReleaseLane(lane);
    command.result = sink.Result();
    if (sink.Status() == 0 && copy && !GoesToDevice(command)) {
        memcpy(DataOf(command), copy->Data(), command.data_len);
    }
    return sink.Status();
}

} // namespace rawduck
