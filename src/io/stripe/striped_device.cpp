#include "io/stripe/striped_device.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

namespace rawduck {
namespace {

//! Headers are read one after the other, while a writer may write them.
constexpr int HEADER_ATTEMPTS = 5;
constexpr std::chrono::milliseconds HEADER_PAUSE{20};

} // namespace

StripedDevice::StripedDevice(std::string target_name, const Stripe &stripe,
                             std::vector<std::unique_ptr<Device>> devices, Headers headers)
    : name_(std::move(target_name)), stripe_(stripe), layout_(stripe) {
    RAWDUCK_INVARIANT(devices.size() == stripe.members.size(), "each member has a device");
    for (size_t i = 0; i < devices.size(); i++) {
        auto member = std::make_unique<Member>();
        member->device = std::move(devices[i]);
        member->clause = "member " + std::to_string(i) + " (" + stripe.members[i].target.name + ")";
        members_.push_back(std::move(member));
    }
    RequireAlike();
    Describe();
    DescribePlacement();
    if (headers == Headers::REQUIRE) {
        RequireHeaders();
    }
}

void StripedDevice::RequireAlike() const {
    const Capabilities &first = members_[0]->device->Caps();
    for (const auto &member : members_) {
        const Capabilities &caps = member->device->Caps();
        if (caps.lba_size != first.lba_size) {
            throw Error(ErrorCode::UNSUPPORTED,
                        name_ + ": " + members_[0]->clause + " has LBAs of " +
                            std::to_string(first.lba_size) + " bytes, and " + member->clause + " of " +
                            std::to_string(caps.lba_size) +
                            "; drives that are striped have LBAs of one size (nvme format --lbaf, which "
                            "erases the drive)");
        }
        if (layout_.CapacityOf(caps.capacity_bytes) == 0) {
            throw Error(ErrorCode::NO_SPACE,
                        name_ + ": " + member->clause + " has only " + std::to_string(caps.capacity_bytes) +
                            " bytes, too few for one chunk of " + std::to_string(layout_.chunk_bytes));
        }
    }
}

// What all of them can do.
void StripedDevice::Describe() {
    caps_ = members_[0]->device->Caps();
    caps_.read_only = false;
    caps_.boundary_bytes = layout_.chunk_bytes;
    uint64_t depth = 0, shortest = UINT64_MAX;
    for (const auto &member : members_) {
        const Capabilities &caps = member->device->Caps();
        if (caps.capacity_bytes < shortest) {
            shortest = caps.capacity_bytes;
            caps_.shortest_part = member->clause + " has " + std::to_string(shortest) + " bytes";
        }
        caps_.memory_alignment = std::max(caps_.memory_alignment, caps.memory_alignment);
        caps_.max_transfer_bytes = std::min(caps_.max_transfer_bytes, caps.max_transfer_bytes);
        caps_.scarce_queues = caps_.scarce_queues || caps.scarce_queues;
        caps_.volatile_write_cache = caps_.volatile_write_cache || caps.volatile_write_cache;
        caps_.fua = caps_.fua && caps.fua;
        caps_.deallocate = caps_.deallocate && caps.deallocate;
        caps_.read_only_part = caps.read_only && !caps_.read_only ? member->clause : caps_.read_only_part;
        caps_.read_only = caps_.read_only || caps.read_only;
        caps_.registered_memory = caps_.registered_memory || caps.registered_memory;
        depth += caps.max_queue_depth;
        if (caps_.polling_obstacle.empty() && !caps.polling_obstacle.empty()) {
            caps_.polling_obstacle = member->clause + ": " + caps.polling_obstacle;
        }
    }
    caps_.max_transfer_bytes =
        static_cast<uint32_t>(std::min<uint64_t>(caps_.max_transfer_bytes, layout_.chunk_bytes));
    caps_.max_queue_depth = static_cast<uint32_t>(std::min<uint64_t>(depth, UINT32_MAX));
    caps_.capacity_bytes = CurrentCapacity();
}

// Where the members have different identifiers, those of the stripe are numbers from 0: the n-th of each member.
void StripedDevice::DescribePlacement() {
    const std::vector<PlacementId> first = caps_.placements;
    size_t common = first.size();
    for (const auto &member : members_) {
        const Capabilities &caps = member->device->Caps();
        translates_placement_ = translates_placement_ || caps.placements != first;
        common = std::min(common, caps.placements.size());
        if (caps_.placement_obstacle.empty() && caps.placements.empty()) {
            caps_.placement_obstacle = member->clause + ": " + caps.placement_obstacle;
        }
    }
    if (!translates_placement_) {
        return;
    }
    caps_.placements.clear();
    for (size_t i = 0; i < common; i++) {
        caps_.placements.push_back(static_cast<PlacementId>(i));
    }
}

uint64_t StripedDevice::CurrentCapacity() const {
    uint64_t smallest = UINT64_MAX;
    for (const auto &member : members_) {
        smallest = std::min(smallest, member->device->CurrentCapacity());
    }
    return layout_.CapacityOf(smallest);
}

size_t StripedDevice::Translate(Command &command) const {
    const StripeLayout::Place place = layout_.PlaceOf(command.device_offset);
    RAWDUCK_SLOW_INVARIANT(command.device_offset % layout_.chunk_bytes + command.length <=
                               layout_.chunk_bytes,
                           "a command lies within a chunk");
    const bool placed = translates_placement_ && command.placement != PlacementId::NONE;
    command.placement =
        placed ? members_[place.member]->device->Caps().placements.at(static_cast<size_t>(command.placement))
               : command.placement;
    command.device_offset = place.offset;
    return place.member;
}

void StripedDevice::TranslateBack(Command &command, size_t member) {
    Member &ran_by = *members_[member];
    command.device_offset = layout_.OffsetOf({member, command.device_offset});
    command.member = ran_by.clause.c_str();
    if (translates_placement_ && command.placement != PlacementId::NONE) {
        const std::vector<PlacementId> &ids = ran_by.device->Caps().placements;
        command.placement =
            static_cast<PlacementId>(std::find(ids.begin(), ids.end(), command.placement) - ids.begin());
    }
    // Before anybody learns that the write is complete: a flush that begins later covers it. Not when it was submitted: a
    // flush that began before it was complete would take the mark, and not cover it.
    if (command.opcode == Opcode::WRITE) {
        ran_by.unflushed.store(true);
    }
}

std::unique_ptr<Queue> StripedDevice::MakeQueue(std::vector<std::unique_ptr<Queue>> queues, uint32_t depth) {
    CommandRouter &router = *this;
    return std::make_unique<StripedQueue>(router, std::move(queues), depth);
}

// A depth of 1 means one command at a time. Otherwise each member has as many in flight as it would have alone.
std::unique_ptr<Queue> StripedDevice::CreateQueue(uint32_t depth, QueueUse use) {
    std::vector<std::unique_ptr<Queue>> queues;
    uint32_t all = 0;
    for (const auto &member : members_) {
        queues.push_back(member->device->CreateQueue(
            std::clamp(depth, 1u, std::max(1u, member->device->Caps().max_queue_depth)), use));
        all += queues.back()->Depth();
    }
    return MakeQueue(std::move(queues), depth == 1 ? 1 : all);
}

std::unique_ptr<Queue> StripedDevice::CreateSynchronousQueue() {
    std::vector<std::unique_ptr<Queue>> queues;
    for (const auto &member : members_) {
        queues.push_back(member->device->CreateSynchronousQueue());
    }
    return MakeQueue(std::move(queues), 1);
}

// Who comes while another thread flushes the member waits for that: it may cover what this one wants to be durable.
void StripedDevice::FlushMember(Member &member) {
    std::lock_guard<std::mutex> guard(member.flush_mutex);
    if (member.flush_failed) {
        throw Error(ErrorCode::IO, name_ + ": an earlier flush of " + member.clause +
                                       " failed, so earlier writes may be lost: " + member.flush_failure);
    }
    if (!member.unflushed.exchange(false)) {
        return;
    }
    try {
        member.device->Flush();
    } catch (const std::exception &error) {
        member.flush_failed = true;
        member.flush_failure = error.what();
        throw Error(ErrorCode::IO, name_ + ": flush of " + member.clause + " failed: " + error.what());
    }
}

// All of them, also when one has failed: what the others have is durable then.
void StripedDevice::Flush() {
    std::exception_ptr failure;
    for (const auto &member : members_) {
        if (!member->device->Caps().volatile_write_cache) {
            continue;
        }
        try {
            FlushMember(*member);
        } catch (const std::exception &) {
            failure = failure ? failure : std::current_exception();
        }
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

bool StripedDevice::Deallocate(uint64_t device_offset, uint64_t length) {
    return DeallocateRanges({{device_offset, length}});
}

bool StripedDevice::DeallocateRanges(const std::vector<DeviceRange> &ranges) {
    bool taken = caps_.deallocate;
    for (size_t i = 0; taken && i < members_.size(); i++) {
        std::vector<DeviceRange> parts;
        for (const DeviceRange &range : ranges) {
            const uint64_t begin = layout_.BytesBefore(range.device_offset, i);
            const uint64_t end = layout_.BytesBefore(range.device_offset + range.length, i);
            if (end > begin) {
                parts.push_back({layout_.data_start + begin, end - begin});
            }
        }
        taken = parts.empty() || members_[i]->device->DeallocateRanges(parts);
    }
    return taken;
}

bool StripedDevice::Register(void *memory, uint64_t bytes, MemoryNeed need) {
    for (size_t i = 0; i < members_.size(); i++) {
        if (!members_[i]->device->Register(memory, bytes, need)) {
            while (i-- > 0) {
                members_[i]->device->Forget(memory);
            }
            return false;
        }
    }
    return true;
}

void StripedDevice::Forget(void *memory) {
    for (const auto &member : members_) {
        member->device->Forget(memory);
    }
}

std::vector<HeaderCopies> StripedDevice::ReadAllHeaders() const {
    std::vector<HeaderCopies> all;
    for (const auto &member : members_) {
        all.push_back(ReadHeaders(*member->device));
    }
    return all;
}

void StripedDevice::RequireMember(const HeaderCopies &copies, size_t index) const {
    const MemberHeader *header = copies.Newest();
    if (!header || header->stripe != stripe_.uuid || header->index != index ||
        header->count != stripe_.members.size() || header->chunk_bytes != layout_.chunk_bytes ||
        header->data_start != layout_.data_start) {
        throw Error(ErrorCode::LOCKED, name_ + ": " + members_[index]->clause +
                                           " is not any more what it was when it was looked up: somebody has "
                                           "formatted it meanwhile; try again");
    }
    // Files may be moved to another file system, and the volume says what it needs.
    if (stripe_.members[index].target.kind != TargetKind::REGULAR_FILE &&
        header->lba_size != caps_.lba_size) {
        throw Error(ErrorCode::UNSUPPORTED,
                    name_ + ": it was made on drives with LBAs of " + std::to_string(header->lba_size) +
                        " bytes, and " + members_[index]->clause + " has LBAs of " +
                        std::to_string(caps_.lba_size) + "; replace a drive by one with the same LBA size");
    }
}

namespace {

bool IsOf(const std::optional<MemberHeader> &copy, const WritingSession &session) {
    return copy && copy->generation == session.generation && copy->session == session.id;
}

//! All members have begun what a first copy says, since all last copies are written before.
WritingSession LastSession(const std::vector<HeaderCopies> &copies) {
    const MemberHeader *newest_first = nullptr, *oldest_last = nullptr;
    for (const HeaderCopies &member : copies) {
        if (member.first && (!newest_first || member.first->generation > newest_first->generation)) {
            newest_first = &*member.first;
        }
        if (member.last && (!oldest_last || member.last->generation < oldest_last->generation)) {
            oldest_last = &*member.last;
        }
    }
    return SessionOf(newest_first ? *newest_first : *oldest_last);
}

} // namespace

//! Empty when all have one history.
std::string StripedDevice::MemberOfAnotherHistory(const std::vector<HeaderCopies> &copies,
                                                  const WritingSession &last) const {
    for (size_t i = 0; i < copies.size(); i++) {
        const HeaderCopies &member = copies[i];
        const bool follows = member.last && member.last->predecessor == last.id;
        if (!IsOf(member.first, last) && !IsOf(member.last, last) && !follows) {
            return members_[i]->clause + " has generation " + std::to_string(member.Generation()) +
                   (member.Generation() == last.generation
                        ? " of another history than the others"
                        : ", and others have " + std::to_string(last.generation));
        }
    }
    return "";
}

StripedDevice::Sessions StripedDevice::RequireHeaders() const {
    std::string outdated;
    for (int attempt = 0; attempt < HEADER_ATTEMPTS; attempt++) {
        const std::vector<HeaderCopies> all = ReadAllHeaders();
        for (size_t i = 0; i < all.size(); i++) {
            RequireMember(all[i], i);
        }
        Sessions sessions;
        sessions.last = LastSession(all);
        for (const HeaderCopies &copies : all) {
            sessions.newest = std::max(sessions.newest, copies.Generation());
            sessions.firsts_are_old = sessions.firsts_are_old || !IsOf(copies.first, sessions.last);
        }
        outdated = MemberOfAnotherHistory(all, sessions.last);
        if (outdated.empty()) {
            return sessions;
        }
        std::this_thread::sleep_for(HEADER_PAUSE);
    }
    throw Error(
        ErrorCode::CORRUPT,
        name_ + ": " + outdated +
            ": one of them is a copy, or was restored from one, and the others were written to without it. "
            "Nothing was changed. Give the volume the drives or files that were in use together last, or "
            "restore "
            "all members from copies of one moment");
}

// The last copies lie at the ends of the members: where one ends earlier now, there is data. A first copy that an earlier cut
// has left old is renewed before the last ones are written: cut there, too, that member would have no other.
void StripedDevice::BeginWriting() {
    const Sessions sessions = RequireHeaders();
    if (CurrentCapacity() < caps_.capacity_bytes) {
        throw Error(ErrorCode::IO,
                    name_ + ": a member was made smaller while it was open; make it as large again");
    }
    for (StripeMember &member : stripe_.members) {
        member.name = NameOf(member.target);
    }
    if (sessions.firsts_are_old) {
        WriteCopies(HeaderCopy::FIRST, sessions.last);
    }
    WriteHeaders({sessions.newest + 1, MakeUuid(), sessions.last.id});
}

void StripedDevice::WriteCopies(HeaderCopy copy, const WritingSession &session) {
    for (size_t i = 0; i < members_.size(); i++) {
        WriteHeader(*members_[i]->device, copy, MakeHeader(stripe_, i, caps_.lba_size, session));
        members_[i]->unflushed.store(true);
    }
    Flush();
}

void StripedDevice::WriteHeaders(const WritingSession &session) {
    WriteCopies(HeaderCopy::LAST, session);
    WriteCopies(HeaderCopy::FIRST, session);
}

void StripedDevice::EraseMembers() {
    for (const auto &member : members_) {
        EraseHeaders(*member->device, member->clause);
        member->unflushed.store(true);
    }
    Flush();
}

std::vector<DeviceMember> StripedDevice::Members() {
    std::vector<DeviceMember> described;
    const std::vector<HeaderCopies> all = ReadAllHeaders();
    for (size_t i = 0; i < members_.size(); i++) {
        described.push_back(
            {stripe_.members[i].target.name, UuidText(stripe_.members[i].uuid), all[i].Problem()});
    }
    return described;
}

} // namespace rawduck
