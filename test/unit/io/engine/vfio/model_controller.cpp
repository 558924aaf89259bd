#include "io/engine/vfio/model_controller.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rawduck {
namespace {

constexpr uint32_t STRIDE = 4;
constexpr uint64_t PAGE = 4096;
constexpr uint16_t INVALID_FIELD = 0x002, OUT_OF_RANGE = 0x080, TRANSFER_ERROR = 0x004,
                   INVALID_QUEUE_IDENTIFIER = 0x101;

} // namespace

ModelController::ModelController(ModelState &state) : state_(state) {}

ModelController::~ModelController() {
    for (const int fd : interrupts_) {
        close(fd);
    }
}

std::optional<uint32_t> ModelController::Read32(uint32_t offset) {
    std::lock_guard<std::mutex> guard(state_.mutex);
    if (state_.absent) {
        return std::nullopt;
    }
    if (state_.reads_zero || state_.reads_ones) {
        return state_.reads_zero ? 0 : REGISTER_GONE;
    }
    if (state_.is_reset) {
        state_.is_reset = false;
        interrupts_enabled_ = 0;
        Disable();
    }
    switch (offset) {
    case REGISTER_CAP:
        return state_.entries_max - 1u; // and ready within half a second
    case REGISTER_CAP + 4:
        return 1 << 5; // the NVM command set
    case REGISTER_CC:
        return configuration_;
    case REGISTER_CSTS:
        return status_ | (state_.fatal ? CSTS_FATAL : 0);
    default:
        return 0;
    }
}

bool ModelController::Write32(uint32_t offset, uint32_t value) {
    std::lock_guard<std::mutex> guard(state_.mutex);
    if (state_.absent || state_.reads_zero || state_.reads_ones) {
        return !state_.absent;
    }
    const auto set = [&](uint64_t &address, bool high) {
        address =
            high ? (address & UINT32_MAX) | uint64_t(value) << 32 : (address & ~uint64_t(UINT32_MAX)) | value;
    };
    if (offset == REGISTER_AQA) {
        entries_ = (value & 0xFFF) + 1;
    } else if (offset == REGISTER_ASQ || offset == REGISTER_ASQ + 4) {
        set(submissions_, offset != REGISTER_ASQ);
    } else if (offset == REGISTER_ACQ || offset == REGISTER_ACQ + 4) {
        set(completions_, offset != REGISTER_ACQ);
    } else if (offset == REGISTER_CC) {
        const bool enables = (value & CC_ENABLE) != 0 && (configuration_ & CC_ENABLE) == 0;
        configuration_ = value;
        if ((value & CC_SHUTDOWN_MASK) == CC_SHUTDOWN_NORMAL) {
            state_.shutdowns++;
            status_ |= CSTS_SHUTDOWN_DONE;
        }
        if ((value & CC_ENABLE) == 0 && !state_.ignores_disable) {
            Disable();
        } else if (enables && !state_.starts_never) {
            state_.enabled++;
            rings_[0] = {submissions_, completions_, entries_, 0, 0, 0, true, false};
            status_ = CSTS_READY;
        }
    }
    return true;
}

void ModelController::Disable() {
    status_ = 0;
    configuration_ &= ~CC_ENABLE;
    state_.fatal = false;
    rings_.clear();
    held_.clear();
    shadow_ = events_ = 0;
}

int ModelController::MapMemory(void *memory, uint64_t bytes, uint64_t iova) {
    std::lock_guard<std::mutex> guard(state_.mutex);
    state_.faults += is_cut_off_ ? 1 : 0;
    if (mappings_.size() >= state_.mappings_max) {
        return ENOSPC;
    }
    mappings_[iova] = {static_cast<char *>(memory), bytes};
    return 0;
}

uint64_t ModelController::MappingsLeft() {
    std::lock_guard<std::mutex> guard(state_.mutex);
    return state_.mappings_max - mappings_.size();
}

void ModelController::UnmapMemory(uint64_t iova, uint64_t) {
    std::lock_guard<std::mutex> guard(state_.mutex);
    state_.faults += mappings_.erase(iova) == 1 ? 0 : 1;
}

bool ModelController::Reset() {
    std::lock_guard<std::mutex> guard(state_.mutex);
    state_.resets++;
    if (state_.ignores_reset || state_.absent || state_.reads_ones) {
        return false;
    }
    configuration_ = 0;
    interrupts_enabled_ = 0;
    Disable();
    return true;
}

void ModelController::StopDma() {
    std::lock_guard<std::mutex> guard(state_.mutex);
    state_.cut_off++;
    is_cut_off_ = true;
    mappings_.clear();
}

void ModelController::Close() {
    std::lock_guard<std::mutex> guard(state_.mutex);
    state_.closed++;
    open_ = false;
    mappings_.clear();
}

std::vector<int> ModelController::EnableInterrupts(uint32_t count) {
    while (interrupts_.size() < count) {
        interrupts_.push_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    interrupts_enabled_ = count;
    return {interrupts_.begin(), interrupts_.begin() + count};
}

//! A page at a time, as an IOMMU looks at it.
bool ModelController::Move(uint64_t iova, char *bytes, uint64_t length, bool to_memory) {
    while (length > 0) {
        const auto behind = mappings_.upper_bound(iova);
        const uint64_t part = std::min(length, PAGE - iova % PAGE);
        if (behind == mappings_.begin() ||
            iova + part > std::prev(behind)->first + std::prev(behind)->second.second) {
            state_.faults++;
            return false;
        }
        const auto &[first, memory] = *std::prev(behind);
        char *const place = memory.first + (iova - first);
        to_memory ? memcpy(place, bytes, part) : memcpy(bytes, place, part);
        iova += part;
        bytes += part;
        length -= part;
    }
    return true;
}

void ModelController::RingDoorbell(uint32_t offset, uint32_t value) {
    std::lock_guard<std::mutex> guard(state_.mutex);
    state_.faults += open_ ? 0 : 1;
    const uint32_t index = (offset - REGISTER_DOORBELLS) / STRIDE, queue = index / 2;
    if (index % 2 != 0 || state_.absent || rings_.count(queue) == 0) {
        return; // the model never looks at which completions were taken: there is room for all
    }
    Rings &rings = rings_[queue];
    if (queue != 0 && shadow_ != 0) {
        uint32_t told = 0;
        Move(shadow_ + index * STRIDE, reinterpret_cast<char *>(&told), sizeof told, false);
        Move(events_ + index * STRIDE, reinterpret_cast<char *>(&told), sizeof told, true);
        value = told;
    }
    rings.tail = value;
    Fetch(queue);
}

void ModelController::Fetch(uint32_t queue) {
    while (rings_.count(queue) != 0 && rings_[queue].head != rings_[queue].tail) {
        Rings &rings = rings_[queue];
        Taken taken = {queue, {}};
        Move(rings.submissions + rings.head * sizeof(SubmissionEntry), reinterpret_cast<char *>(&taken.entry),
             sizeof taken.entry, false);
        rings.head = (rings.head + 1) % rings.entries;
        const bool stuck = queue != 0 && taken.entry.opcode != 0 && taken.entry.cdw10 == state_.held_lba;
        const bool holds = stuck || (queue == 0 ? state_.holds_administration > 0 : state_.holds);
        state_.held_lba = stuck ? UINT64_MAX : state_.held_lba;
        state_.holds_administration -= queue == 0 && holds ? 1 : 0;
        if (holds) {
            held_.push_back(taken);
            state_.ever_held++;
        } else {
            CarryOut(taken);
        }
    }
}

void ModelController::Release() {
    std::lock_guard<std::mutex> guard(state_.mutex);
    for (const Taken &taken : std::vector<Taken>(std::move(held_))) {
        CarryOut(taken);
    }
    held_.clear();
}

size_t ModelController::CompletionQueues() {
    std::lock_guard<std::mutex> guard(state_.mutex);
    return rings_.size() - 1;
}

size_t ModelController::Held() {
    std::lock_guard<std::mutex> guard(state_.mutex);
    return held_.size();
}

void ModelController::CarryOut(const Taken &taken) {
    uint64_t result = 0;
    const uint16_t status = taken.queue == 0 ? Administer(taken.entry, result) : Transfer(taken.entry);
    Post(taken.queue, taken.entry, status, result);
}

uint16_t ModelController::Administer(const SubmissionEntry &entry, uint64_t &result) {
    const uint32_t id = entry.cdw10 & 0xFFFF, entries = (entry.cdw10 >> 16) + 1;
    switch (entry.opcode) {
    case 0x06: {
        std::vector<char> page(PAGE);
        page[77] = static_cast<char>(state_.mdts);
        page[257] = state_.shadow_doorbells ? 1 : 0;
        page[536] = state_.sgl ? 1 : 0;
        return Move(entry.data[0], page.data(), PAGE, true) ? 0 : TRANSFER_ERROR;
    }
    case ADMIN_SET_FEATURES:
        result = (state_.queues_max - 1u) << 16 | (state_.queues_max - 1u);
        return 0;
    case ADMIN_DOORBELL_BUFFER_CONFIG:
        if (state_.refuses_shadow_doorbells) {
            return INVALID_FIELD;
        }
        shadow_ = entry.data[0];
        events_ = entry.data[1];
        return 0;
    case ADMIN_CREATE_COMPLETION_QUEUE:
        if (id > state_.queues_max || entries > state_.entries_max || rings_.count(id) != 0) {
            return INVALID_QUEUE_IDENTIFIER;
        }
        rings_[id].completions = entry.data[0];
        rings_[id].interrupts = (entry.cdw11 & QUEUE_INTERRUPTS) != 0;
        return 0;
    case ADMIN_CREATE_SUBMISSION_QUEUE:
        if (id > state_.submission_queues_max) {
            return INVALID_QUEUE_IDENTIFIER;
        }
        rings_[id].submissions = entry.data[0];
        rings_[id].entries = entries;
        return 0;
    case ADMIN_DELETE_COMPLETION_QUEUE:
        if (state_.refuses_deletion) {
            return INVALID_FIELD;
        }
        state_.deleted += rings_.erase(id);
        return 0;
    default:
        return 0x001;
    }
}

//! Reads and writes as Identify promises them: the list of pages within one page, no further.
uint16_t ModelController::Transfer(const SubmissionEntry &entry) {
    if (entry.opcode == 0) {
        return 0;
    }
    const uint64_t lba = uint64_t(entry.cdw11) << 32 | entry.cdw10;
    const uint64_t length = ((entry.cdw12 & 0xFFFF) + 1) * uint64_t(ModelState::LBA_BYTES);
    if (lba * ModelState::LBA_BYTES + length > ModelState::CAPACITY) {
        return OUT_OF_RANGE;
    }
    if (state_.mdts != 0 && length > PAGE << state_.mdts) {
        return INVALID_FIELD;
    }
    const auto failing = state_.status_of_lba.lower_bound(lba);
    if (failing != state_.status_of_lba.end() && failing->first < lba + length / ModelState::LBA_BYTES) {
        return failing->second;
    }
    char *const bytes = &state_.medium[lba * ModelState::LBA_BYTES];
    const bool reads = entry.opcode == 2;
    if ((entry.flags & 1 << 6) != 0) {
        state_.blocks++;
        const bool whole = static_cast<uint32_t>(entry.data[1]) == length && entry.data[1] >> 56 == 0;
        return whole && state_.sgl && Move(entry.data[0], bytes, length, reads) ? 0 : TRANSFER_ERROR;
    }
    const uint64_t first = std::min(length, PAGE - entry.data[0] % PAGE);
    bool moved = Move(entry.data[0], bytes, first, reads);
    if (length > first && length - first <= PAGE) {
        moved =
            moved && entry.data[1] % PAGE == 0 && Move(entry.data[1], bytes + first, length - first, reads);
    } else if (length > first) {
        state_.lists++;
        uint64_t list = entry.data[1];
        for (uint64_t at = first; at < length && moved; at += PAGE, list += sizeof(uint64_t)) {
            uint64_t page = 0;
            moved = Move(list, reinterpret_cast<char *>(&page), sizeof page, false) && page % PAGE == 0 &&
                    Move(page, bytes + at, std::min(PAGE, length - at), reads);
        }
    }
    return moved ? 0 : TRANSFER_ERROR;
}

void ModelController::Post(uint32_t queue, const SubmissionEntry &entry, uint16_t status, uint64_t result) {
    if (rings_.count(queue) == 0) {
        return;
    }
    Rings &rings = rings_[queue];
    CompletionEntry completion = {};
    completion.result[0] = static_cast<uint32_t>(result);
    completion.queue_id = static_cast<uint16_t>(queue);
    completion.command_id = entry.command_id;
    if (state_.wrong_identifier && queue != 0) {
        completion.command_id = 999;
        state_.wrong_identifier = false;
    }
    completion.status = static_cast<uint16_t>(status << 1 | (rings.phase ? 1 : 0));
    Move(rings.completions + rings.completion_tail * sizeof completion, reinterpret_cast<char *>(&completion),
         sizeof completion, true);
    rings.completion_tail++;
    if (rings.completion_tail == rings.entries) {
        rings.completion_tail = 0;
        rings.phase = !rings.phase;
    }
    if (rings.interrupts && queue < interrupts_enabled_) {
        eventfd_write(interrupts_[queue], 1);
    }
}

} // namespace rawduck
