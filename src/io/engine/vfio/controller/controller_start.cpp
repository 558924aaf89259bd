//! How a controller is started, the first time and after each recovery: Controller's functions that need its
//! mutex. What they return is empty, or a clause that says what failed.
#include "io/engine/vfio/controller/controller.hpp"

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/little_endian.hpp"
#include "common/units.hpp"
#include "io/engine/vfio/dma/data_pointer.hpp"
#include "target/nvme/nvme_status.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace rawduck {
namespace {

constexpr uint16_t ADMIN_ENTRIES = 32;
constexpr uint8_t ADMIN_IDENTIFY = 0x06;
constexpr uint32_t IDENTIFY_CONTROLLER = 1;
//! More than a list of pages that lies within a page can name: memory may begin within a page.
constexpr uint64_t TRANSFER_MAX = 2 * MIB - PAGE_BYTES;
constexpr uint32_t LIST_BYTES_MIN = 64;
//! Between two looks at a register or an administrative queue.
constexpr long LOOK_NS = 50000;
//! Of the capabilities that a register names, the commands of the NVM command set.
constexpr uint16_t OPTIONAL_DOORBELL_BUFFER = 1 << 8;

void ShortPause() {
    const timespec pause = {0, LOOK_NS};
    nanosleep(&pause, nullptr);
}

std::string StatusText(int status) {
    return status < 0 ? ErrnoText(-status) : NvmeStatusText(static_cast<uint16_t>(status));
}

uint32_t PowerOfTwo(uint32_t at_least) {
    uint32_t power = LIST_BYTES_MIN;
    while (power < at_least) {
        power *= 2;
    }
    return power;
}

} // namespace

bool Controller::WaitUntil(uint32_t mask, uint32_t value, uint64_t timeout_ms) {
    const uint64_t end = MonotonicNs() + timeout_ms * 1000000;
    for (;;) {
        const auto status = function_->Read32(REGISTER_CSTS);
        if (!status || *status == REGISTER_GONE) {
            return false;
        }
        if ((*status & mask) == value) {
            return true;
        }
        if ((value & CSTS_READY) != 0 && ((*status & CSTS_FATAL) != 0 || RemovalRequested())) {
            return false;
        }
        if (MonotonicNs() > end) {
            return false;
        }
        ShortPause();
    }
}

bool Controller::WriteAddress(uint32_t offset, uint64_t address) {
    return function_->Write32(offset, static_cast<uint32_t>(address)) &&
           function_->Write32(offset + 4, static_cast<uint32_t>(address >> 32));
}

//! False when the function does not answer, or something else answers in its place.
bool Controller::SameController() {
    const auto low = function_->Read32(REGISTER_CAP), high = function_->Read32(REGISTER_CAP + 4);
    return low && high && (uint64_t(*high) << 32 | *low) == capabilities_.value;
}

std::string Controller::Start() {
    const auto low = function_->Read32(REGISTER_CAP), high = function_->Read32(REGISTER_CAP + 4);
    if (!low || !high || *low == REGISTER_GONE || *low == 0) {
        return "its registers cannot be read; the link may be lost";
    }
    capabilities_.value = uint64_t(*high) << 32 | *low;
    if (!capabilities_.HasNvmCommandSet()) {
        return "it does not have the NVM command set";
    }
    if (capabilities_.PageBytesMin() > PAGE_BYTES) {
        return "its smallest page is " + std::to_string(capabilities_.PageBytesMin()) +
               " bytes, and memory is mapped in pages of 4096";
    }
    if (!admin_) {
        admin_ = std::make_unique<QueuePair>(*function_, memory_, 0, ADMIN_ENTRIES, LIST_BYTES_MIN, name_);
        admin_data_ = std::make_unique<DmaMemory>(memory_, PAGE_BYTES, name_);
    }
    std::string problem = Enable();
    if (problem.empty()) {
        problem = Configure();
    }
    for (QueueLane &lane : lanes_) {
        if (problem.empty()) {
            bool is_clean = true; // the caller makes it quiet
            problem = CreateQueues(lane, is_clean);
        }
    }
    return problem;
}

//! From whatever state it is in: somebody else may have left it enabled.
std::string Controller::Enable() {
    const auto configuration = function_->Read32(REGISTER_CC);
    if (!configuration || !function_->Write32(REGISTER_CC, *configuration & ~CC_ENABLE) ||
        !WaitUntil(CSTS_READY, 0, capabilities_.ReadyTimeoutMs())) {
        return "it cannot be disabled before it is set up";
    }
    ResetPair(*admin_, false);
    const uint32_t entries = ADMIN_ENTRIES - 1; // both numbers count from 0
    if (!function_->Write32(REGISTER_AQA, entries << 16 | entries) ||
        !WriteAddress(REGISTER_ASQ, admin_->SubmissionIova()) ||
        !WriteAddress(REGISTER_ACQ, admin_->CompletionIova()) ||
        !function_->Write32(REGISTER_CC, CC_ENABLE | CC_ENTRY_SIZES) ||
        !WaitUntil(CSTS_READY, CSTS_READY, capabilities_.ReadyTimeoutMs())) {
        return "it does not become ready";
    }
    return "";
}

//! Without Identify nothing is known of it, and without Set Features there are no queues.
std::string Controller::Configure() {
    SubmissionEntry identify = {};
    identify.opcode = ADMIN_IDENTIFY;
    identify.cdw10 = IDENTIFY_CONTROLLER;
    identify.data[0] = admin_data_->Iova();
    uint64_t result = 0;
    int status = RunAdmin(identify, &result);
    if (status != 0) {
        return "Identify failed: " + StatusText(status);
    }
    const auto *identity = reinterpret_cast<const uint8_t *>(admin_data_->Data());
    UseIdentity(identity);
    const uint32_t interrupts_max = function_->InterruptsMax();
    interrupts_ = function_->EnableInterrupts(std::min(options_.lanes_max + 1, interrupts_max));
    SubmissionEntry queues = {};
    queues.opcode = ADMIN_SET_FEATURES;
    queues.cdw10 = FEATURE_NUMBER_OF_QUEUES;
    queues.cdw11 = (options_.lanes_max - 1) << 16 | (options_.lanes_max - 1);
    status = RunAdmin(queues, &result);
    if (status != 0) {
        return "Set Features (number of queues) failed: " + StatusText(status);
    }
    const uint32_t granted = static_cast<uint32_t>(std::min(result & 0xFFFF, result >> 16 & 0xFFFF)) + 1;
    lanes_max_ = std::min(options_.lanes_max, granted);
    if (lanes_.size() > lanes_max_) {
        return "it has fewer queues than before";
    }
    return SetUpShadowDoorbells(identity);
}

void Controller::UseIdentity(const uint8_t *identity) {
    const uint8_t mdts = identity[77];
    const auto sgls = static_cast<uint32_t>(ReadLittleEndian(identity + 536, 4));
    const uint64_t limit = mdts == 0 || mdts > 20 ? TRANSFER_MAX : capabilities_.PageBytesMin() << mdts;
    max_transfer_bytes_ = static_cast<uint32_t>(std::min(limit, TRANSFER_MAX));
    list_bytes_ = PowerOfTwo(PrpListEntriesMax(max_transfer_bytes_) * sizeof(uint64_t));
    entries_ =
        static_cast<uint16_t>(std::min<uint32_t>(capabilities_.QueueEntriesMax(), options_.entries_max));
    sgl_ = (sgls & 3) != 0;
}

//! An emulated controller that has them is spared most writes to its doorbells. One that refuses them does without.
std::string Controller::SetUpShadowDoorbells(const uint8_t *identity) {
    const auto optional = ReadLittleEndian(identity + 256, 2);
    const uint64_t doorbells = 2ull * (options_.lanes_max + 1) * capabilities_.DoorbellStride();
    has_shadow_doorbells_ = false;
    if ((optional & OPTIONAL_DOORBELL_BUFFER) == 0 || doorbells > PAGE_BYTES) {
        return "";
    }
    if (!shadow_) {
        shadow_ = std::make_unique<DmaMemory>(memory_, 2 * PAGE_BYTES, name_);
    }
    std::fill_n(shadow_->Data(), 2 * PAGE_BYTES, '\0');
    SubmissionEntry configure = {};
    configure.opcode = ADMIN_DOORBELL_BUFFER_CONFIG;
    configure.data[0] = shadow_->Iova();
    configure.data[1] = shadow_->Iova() + PAGE_BYTES;
    uint64_t result = 0;
    const int status = RunAdmin(configure, &result);
    has_shadow_doorbells_ = status == 0;
    return status >= 0 ? "" : "Doorbell Buffer Config failed: " + StatusText(status);
}

//! -1: none.
int Controller::InterruptOf(const QueueLane &lane) const {
    const uint16_t id = lane.Pair().Id();
    return lane.Polls() || id >= interrupts_.size() ? -1 : interrupts_[id];
}

//! The administrative queue uses its doorbells in BAR0, though the controller may mirror them.
void Controller::ResetPair(QueuePair &pair, bool shadow) {
    const uint32_t stride = capabilities_.DoorbellStride();
    const auto at = [&](uint32_t page, uint32_t index) {
        return reinterpret_cast<volatile uint32_t *>(shadow_->Data() + page * PAGE_BYTES +
                                                     uint64_t(index) * stride);
    };
    const uint32_t submission = 2u * pair.Id(), completion = submission + 1;
    if (shadow && has_shadow_doorbells_) {
        pair.Reset(stride, {at(0, submission), at(1, submission)}, {at(0, completion), at(1, completion)});
    } else {
        pair.Reset(stride, {}, {});
    }
}

//! `is_clean`: whether the controller has neither of the two after a failure.
std::string Controller::CreateQueues(QueueLane &lane, bool &is_clean) {
    QueuePair &pair = lane.Pair();
    if (pair.Entries() > capabilities_.QueueEntriesMax()) {
        return "its queues have become shorter";
    }
    ResetPair(pair, true);
    lane.ForgetViolation();
    lane.SetInterrupt(InterruptOf(lane));
    const uint32_t id = pair.Id(), sizes = (pair.Entries() - 1u) << 16 | id;
    SubmissionEntry completion = {};
    completion.opcode = ADMIN_CREATE_COMPLETION_QUEUE;
    completion.data[0] = pair.CompletionIova();
    completion.cdw10 = sizes;
    completion.cdw11 = QUEUE_CONTIGUOUS | (lane.Interrupt() >= 0 ? QUEUE_INTERRUPTS | id << 16 : 0);
    SubmissionEntry submission = {};
    submission.opcode = ADMIN_CREATE_SUBMISSION_QUEUE;
    submission.data[0] = pair.SubmissionIova();
    submission.cdw10 = sizes;
    submission.cdw11 = id << 16 | QUEUE_CONTIGUOUS;
    uint64_t result = 0;
    int status = RunAdmin(completion, &result);
    if (status != 0) {
        is_clean = status > 0; // what it has refused, it does not have
        return "Create I/O Completion Queue failed: " + StatusText(status);
    }
    status = RunAdmin(submission, &result);
    if (status == 0) {
        return "";
    }
    SubmissionEntry deletion = {};
    deletion.opcode = ADMIN_DELETE_COMPLETION_QUEUE;
    deletion.cdw10 = id;
    is_clean = status > 0 && RunAdmin(deletion, &result) == 0;
    return "Create I/O Submission Queue failed: " + StatusText(status);
}

//! One at a time, looking for its completion until the time is over, or the controller is gone or wanted back. 0, a
//! positive NVMe status, or a negative errno: after ETIMEDOUT the command may still be carried out, and the
//! controller must be recovered.
int Controller::RunAdmin(const SubmissionEntry &entry, uint64_t *result) {
    const uint64_t end = MonotonicNs() + options_.admin_timeout_ms * 1000000;
    admin_->Push(entry, admin_->TakeSlot({}, MonotonicNs()));
    admin_->Ring();
    QueuePair::Completion completion;
    for (;;) {
        const auto popped = admin_->Pop(completion);
        if (popped == QueuePair::PopResult::COMPLETED) {
            admin_->Acknowledge();
            *result = completion.result;
            return completion.status;
        }
        const auto status = function_->Read32(REGISTER_CSTS);
        const bool answers =
            status && *status != REGISTER_GONE && (*status & CSTS_READY) != 0 && (*status & CSTS_FATAL) == 0;
        if (popped == QueuePair::PopResult::VIOLATION || !answers || MonotonicNs() > end ||
            RemovalRequested()) {
            return -ETIMEDOUT;
        }
        ShortPause();
    }
}

} // namespace rawduck
