#include "io/engine/xnvme/xnvme_queue.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "io/device/nvme_device.hpp"
#include "io/engine/ring/ring_workers.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sched.h>

namespace rawduck {
namespace {

//! Of a queue without completions: first it is asked again at once, because a fast device answers within
//! microseconds, then with a pause, so that waiting threads leave the processors to others.
constexpr uint32_t EAGER_POKES = 64;
constexpr long PAUSE_NS = 20000;

void Pause(uint32_t &pokes) {
    if (pokes++ < EAGER_POKES) {
        sched_yield();
        return;
    }
    const timespec pause = {0, PAUSE_NS};
    nanosleep(&pause, nullptr);
}

uint32_t PowerOfTwo(uint32_t at_least) {
    uint32_t power = 1;
    while (power < at_least) {
        power *= 2;
    }
    return power;
}

constexpr const char *CONTROLLER_LOST = "the controller or its driver in libxnvme did not answer in time; "
                                        "end this process, and look into the kernel log "
                                        "(dmesg)";

bool IsTransient(int error_number) {
    return error_number == EINTR || error_number == EAGAIN || error_number == EBUSY || error_number == ENOMEM;
}

} // namespace

XnvmeConnection::XnvmeConnection(const XnvmeModule &xnvme, const XnvmeOpenOptions &options)
    : module(xnvme), byte_offsets(options.byte_offsets) {
    error = module.open(&options, &device);
}

XnvmeConnection::XnvmeConnection(const XnvmeModule &xnvme, const XnvmeControllerOptions &options)
    : module(xnvme), byte_offsets(false), drives_controller(true), namespace_id(options.namespace_id) {
    error = module.open_controller(&options, &device);
}

XnvmeConnection::~XnvmeConnection() {
    if (device) {
        module.close(device);
    }
}

nvme_passthru_cmd64 XnvmeConnection::MakeTransfer(const Command &command) const {
    if (!byte_offsets) {
        return MakeNvmeTransfer(command, namespace_id, lba_size);
    }
    nvme_passthru_cmd64 transfer = MakeNvmeTransfer(command, 0, 1);
    transfer.cdw12 = transfer.cdw13 = 0; // the number of LBAs and their placement
    return transfer;
}

void XnvmeConnection::Run(Command &command) const {
    const nvme_passthru_cmd64 transfer = MakeTransfer(command);
    int64_t bytes = 0;
    const int status = module.run(device, &transfer, &bytes);
    if (byte_offsets && status == 0) {
        command.result = bytes;
    } else {
        SetResult(command, status);
    }
}

void XnvmeConnection::SetResult(Command &command, int status) const {
    SetNvmeResult(command, status);
    command.cause = CauseOf(status);
}

const char *XnvmeConnection::CauseOf(int status) const {
    return drives_controller && status == -ENODEV ? CONTROLLER_LOST : nullptr;
}

XnvmeQueue::XnvmeQueue(const XnvmeConnection &connection, const std::string &target_name, uint32_t depth)
    : connection_(connection), target_name_(target_name),
      depth_(std::max(1u, std::min(depth, XNVME_MAX_CAPACITY))), completions_(depth_) {
    refused_.reserve(depth_);
    if (!connection.byte_offsets && !connection.drives_controller) {
        entries_.emplace(RingEntries::CountFor(depth_, XNVME_MAX_CAPACITY));
    }
    const uint32_t capacity = entries_ ? entries_->Count() : PowerOfTwo(depth_);
    const int result = connection.module.create_queue(connection.device, capacity, &queue_);
    if (result != 0) {
        throw Error(ErrorCode::IO, target_name_ + ": libxnvme cannot make a queue of " +
                                       std::to_string(depth_) +
                                       " commands for one more thread: " + ErrnoText(-result) +
                                       "; give nvme_queues a smaller depth, or mode=pool");
    }
}

XnvmeQueue::~XnvmeQueue() {
    RAWDUCK_INVARIANT(in_flight_ == 0 && refused_.empty(),
                      "a queue is destroyed when all of its commands were reaped");
    connection_.module.destroy_queue(queue_);
}

bool XnvmeQueue::Submit(Command &command) {
    if (in_flight_ + refused_.size() >= depth_ || (entries_ && !entries_->NextIsFree())) {
        return false;
    }
    if (entries_) {
        LimitRingWorkersOfThisThread();
    }
    const nvme_passthru_cmd64 transfer = connection_.MakeTransfer(command);
    const int result = connection_.module.submit(queue_, &transfer, &command);
    if (result == 0) {
        in_flight_++;
        command.ring_entry = entries_ ? entries_->Take() : 0;
    } else if (result == -EAGAIN && in_flight_ > 0) {
        return false; // a completion frees what it is short of
    } else {
        command.result = result;
        command.cause = connection_.CauseOf(result);
        refused_.push_back(&command);
    }
    return true;
}

uint32_t XnvmeQueue::Reap(Command **completed, uint32_t max, bool wait) {
    const auto count = static_cast<uint32_t>(std::min<size_t>(max, refused_.size()));
    std::copy_n(refused_.begin(), count, completed);
    refused_.erase(refused_.begin(), refused_.begin() + count);
    uint32_t found = Poke(completed + count, max - count);
    for (uint32_t pokes = 0; wait && count + found == 0;) {
        Pause(pokes);
        found = Poke(completed, max);
    }
    return count + found;
}

uint32_t XnvmeQueue::Poke(Command **completed, uint32_t max) {
    if (in_flight_ == 0 || max == 0) {
        return 0;
    }
    const int result = connection_.module.poke(queue_, completions_.data(), std::min(max, depth_));
    if (result < 0 && !IsTransient(-result)) {
        // The device may still write to memory that the caller takes back when this returns, and there is no
        // way left to learn when. Corrupting it silently would be worse than stopping here.
        std::fprintf(stderr, "rawduck: %s: libxnvme cannot say what became of %u commands in flight: %s\n",
                     target_name_.c_str(), in_flight_, ErrnoText(-result).c_str());
        std::abort();
    }
    const auto count = static_cast<uint32_t>(std::max(result, 0));
    RAWDUCK_INVARIANT(count <= in_flight_ && count <= max, "what completes was in flight");
    in_flight_ -= count;
    for (uint32_t i = 0; i < count; i++) {
        auto &command = *static_cast<Command *>(completions_[i].owner);
        completed[i] = &command;
        if (entries_) {
            entries_->Give(command.ring_entry);
        }
        if (completions_[i].status != 0) {
            connection_.SetResult(command, completions_[i].status);
        } else if (completions_[i].failed) {
            connection_.Run(command); // once more, for a result that can be told apart
        } else {
            command.result = connection_.byte_offsets ? completions_[i].result : command.length;
        }
    }
    return count;
}

} // namespace rawduck
