//! An NVMe controller that this process drives by itself: start, queues, commands, and what happens when it does
//! not answer.
//!
//!   RUNNING ── CheckHealth finds a cause ──▶ Recover: every lane is locked, nothing is submitted
//!      ▲                                        │ Quiesce, until the controller transfers nothing any more:
//!      │                                        │   1. CC.EN = 0, and CSTS.RDY goes within CAP.TO
//!      │                                        │   2. or the function is reset
//!      │                                        │   3. or it is no bus master any more and has no memory
//!      │                                        ▼
//!      │                        the commands in flight are taken back
//!      └── 1 or 2, and Start succeeds ──────────┤  they end with 371h, and may be sent again
//!                                               └── otherwise: DEAD; they and all later ones end with 370h
//!
//! So the memory of a command never goes back to its owner while the controller could still write to it, or send
//! what somebody else has put there. Commands are neither aborted nor their queues deleted: both ask the
//! controller that does not answer.
#pragma once

#include "common/error.hpp"
#include "io/engine/vfio/queue/queue_lane.hpp"
#include "target/nvme/nvme_commands.hpp"

#include <atomic>
#include <list>
#include <thread>

namespace rawduck {

struct ControllerOptions {
    //! As the kernel's driver waits, unless nvme_core.io_timeout says otherwise.
    uint64_t command_timeout_ms = 30000;
    //! The same of administrative commands, for which there is another parameter (nvme_core.admin_timeout): machines
    //! that wait for hours for their data (io_timeout) must not do so for these, which keep everybody waiting.
    uint64_t admin_timeout_ms = 60000;
    //! How long it may not answer at all before it counts as lost: others may reset it (a tenth of a second).
    uint64_t silence_ms = 2000;
    uint32_t lanes_max = 2;     //!< at most; the controller may have fewer
    uint16_t entries_max = 128; //!< of a queue
};

//! Thread-safe. Queues (VfioQueue) must be destroyed before it.
class Controller {
  public:
    //! Starts it. Throws Error, with `name` for the device: IO, UNSUPPORTED, PERMISSION (locked memory).
    Controller(std::unique_ptr<PciFunction> function, const ControllerOptions &options, std::string name);
    //! A normal shutdown, unless it is dead.
    ~Controller();
    Controller(const Controller &) = delete;
    Controller &operator=(const Controller &) = delete;

    DmaSpace &Memory() { return memory_; }
    //! Bytes of one command, at most: MDTS, and what a list of pages holds.
    uint32_t MaxTransferBytes() const { return max_transfer_bytes_; }
    uint32_t QueueEntries() const { return entries_; }
    bool HasInterrupts() const { return !interrupts_.empty(); }

    //! The lane with the fewest queues; a new one while there may be more, and can be. One of a dead controller ends
    //! every command with the cause. Throws Error when there is none, and none can be made.
    QueueLane &AcquireLane(bool polls);
    void ReleaseLane(QueueLane &lane);

    //! Puts a command into the lane's ring, which has room. The lane is locked, and not dead. The controller is
    //! told by QueuePair::Ring. `iova`: of the data; ignored where there is none. `now_ns`: what MonotonicNs says;
    //! the time that the command may take begins there.
    void Submit(QueueLane &lane, const nvme_passthru_cmd64 &command, uint64_t iova, const CommandOwner &owner,
                uint64_t now_ns);
    //! Waits as QueueLane::Wait, and looks after the controller when nothing comes.
    void Wait(QueueLane &lane, std::unique_lock<std::mutex> &lock);

    //! Runs one command on the calling thread, its data anywhere, and sends it again when the controller was recovered
    //! meanwhile: it must be one that may be carried out twice. 0, a positive NVMe status or a negative errno. Throws Error when the controller is dead or has no queue.
    int Run(NvmeQueueKind kind, nvme_passthru_cmd64 &command);
    //! Empty while it takes commands; otherwise a clause that says why not.
    std::string Dead();
    //! How often it was recovered.
    uint64_t Recoveries() const { return recoveries_; }
    //! Looks whether the controller answers, and recovers it if it does not. No lane may be locked.
    void CheckHealth();

  private:
    enum class Quiet { DISABLED, RESET, CUT_OFF };
    using LaneLocks = std::vector<std::unique_lock<std::mutex>>;

    // The mutex is held by the caller of all that follow.
    std::string Start();
    std::string Enable();
    std::string Configure();
    std::string SetUpShadowDoorbells(const uint8_t *identity);
    std::string CreateQueues(QueueLane &lane, bool &is_clean);
    int InterruptOf(const QueueLane &lane) const;
    void ResetPair(QueuePair &pair, bool shadow);
    void UseIdentity(const uint8_t *identity);
    int RunAdmin(const SubmissionEntry &entry, uint64_t *result);
    int RunAdminWithData(nvme_passthru_cmd64 &command);
    bool WaitUntil(uint32_t mask, uint32_t value, uint64_t timeout_ms);
    bool WriteAddress(uint32_t offset, uint64_t address);
    bool SameController();
    const char *FindFailure();
    bool IsOverdue();
    void Recover(const char *cause);
    std::string StartAgain(Quiet quiet);
    bool IsQuiet();
    bool Disable();
    Quiet Quiesce();
    LaneLocks LockLanes();
    QueueLane &SharedLane(bool polls);
    QueueLane &LaneFor(bool polls);
    QueueLane &AddLane(bool polls);

    Error DeadError(const std::string &cause) const;
    int RunIo(nvme_passthru_cmd64 &command);
    int RunAdministrative(nvme_passthru_cmd64 &command);
    bool RemovalRequested() const;
    void Watch();
    void StartWatching();

    const std::string name_;
    const ControllerOptions options_;
    const std::unique_ptr<PciFunction> function_;
    DmaSpace memory_;

    //! Guards what follows, and is held while the controller is started, recovered, or runs an administrative
    //! command. The mutexes of lanes are taken under it.
    std::mutex mutex_;
    ControllerCapabilities capabilities_;
    std::unique_ptr<QueuePair> admin_;
    std::unique_ptr<DmaMemory> admin_data_; //!< a page
    std::unique_ptr<DmaMemory> shadow_;     //!< two pages: doorbells, event indexes; null: never needed
    bool has_shadow_doorbells_ = false;     //!< the controller looks at them
    std::list<QueueLane> lanes_;            //!< in the order in which they are locked
    uint32_t lanes_max_ = 0;
    std::string dead_;

    // Fixed once started, or changed by a new start to what they were.
    uint32_t max_transfer_bytes_ = 0, list_bytes_ = 0;
    uint16_t entries_ = 0;
    bool sgl_ = false;
    std::vector<int> interrupts_;

    std::atomic<uint64_t> recoveries_{0};
    int stop_ = -1; //!< eventfd that ends the watcher
    std::thread watcher_;
};

} // namespace rawduck
