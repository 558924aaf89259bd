#include "io/stripe/member_header.hpp"

#include "common/crc32c.hpp"
#include "common/error.hpp"
#include "common/memory/aligned_buffer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rawduck {
namespace {

//! Of a command which the device gives back.
constexpr int MAX_ATTEMPTS = 16;

uint32_t ChecksumOf(const char *unit) {
    AlignedBuffer copy;
    copy.Append(unit, ALLOCATION_UNIT_BYTES);
    memset(copy.Data() + offsetof(MemberHeader, crc), 0, sizeof(MemberHeader::crc));
    return Crc32c(0, copy.Data(), ALLOCATION_UNIT_BYTES);
}

//! Nothing when the unit holds no header, or a damaged one.
std::optional<MemberHeader> Decode(const char *unit, uint32_t &unknown_version) {
    MemberHeader header;
    memcpy(static_cast<void *>(&header), unit, sizeof(header));
    if (memcmp(header.magic, MEMBER_MAGIC, sizeof(MEMBER_MAGIC)) != 0 || header.crc != ChecksumOf(unit)) {
        return std::nullopt;
    }
    if (header.version != MEMBER_VERSION) {
        unknown_version = header.version;
        return std::nullopt;
    }
    const bool possible = header.count >= STRIPE_MEMBERS_MIN && header.count <= STRIPE_MEMBERS_MAX &&
                          header.index < header.count && header.chunk_bytes >= CHUNK_BYTES_MIN &&
                          header.chunk_bytes <= CHUNK_BYTES_MAX &&
                          IsAligned(header.chunk_bytes, header.chunk_bytes) &&
                          IsAligned(header.data_start, ALLOCATION_UNIT_BYTES) && header.data_start >= MIB &&
                          header.data_start <= CHUNK_BYTES_MAX;
    return possible ? std::optional<MemberHeader>(header) : std::nullopt;
}

uint64_t LastUnit(uint64_t member_bytes) {
    return AlignDown(member_bytes, ALLOCATION_UNIT_BYTES) - ALLOCATION_UNIT_BYTES;
}

//! Runs one command on the calling thread. False when it failed; `error_number` says why.
bool Transfer(Device &device, Opcode opcode, uint64_t offset, char *unit, int &error_number) {
    const std::unique_ptr<Queue> queue = device.CreateSynchronousQueue();
    Command command;
    command.opcode = opcode;
    uint32_t done = 0;
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        command.device_offset = offset + done;
        command.data = unit + done;
        command.length = static_cast<uint32_t>(ALLOCATION_UNIT_BYTES) - done;
        command.result = 0;
        Command *completed = nullptr;
        if (!queue->Submit(command)) {
            continue;
        }
        while (queue->Reap(&completed, 1, true) == 0) {
        }
        const bool again = command.result == -EAGAIN || command.result == -EINTR;
        if (command.result <= 0 && !again) {
            break;
        }
        done += again ? 0 : AlignDown(static_cast<uint64_t>(command.result), device.Caps().lba_size);
        if (done == ALLOCATION_UNIT_BYTES) {
            return true;
        }
    }
    error_number = command.result < 0 ? static_cast<int>(-command.result) : EIO;
    return false;
}

void Write(Device &device, const std::string &name, uint64_t offset, char *unit) {
    int error_number = 0;
    if (!Transfer(device, Opcode::WRITE, offset, unit, error_number)) {
        throw Error(ErrorCode::IO, name + ": cannot write what it says of its stripe, at byte offset " +
                                       std::to_string(offset) + ": " + ErrnoText(error_number) +
                                       "; look into the kernel log (dmesg)");
    }
}

template <size_t SIZE> void CopyText(char (&field)[SIZE], const std::string &text) {
    memset(field, 0, SIZE);
    if (text.size() < SIZE) {
        memcpy(field, text.data(), text.size());
    }
}

template <size_t SIZE> std::string TextOf(const char (&field)[SIZE]) {
    return std::string(field, strnlen(field, SIZE));
}

} // namespace

const MemberHeader *HeaderCopies::Newest() const {
    if (first && last) {
        return last->generation > first->generation ? &*last : &*first;
    }
    return first ? &*first : last ? &*last : nullptr;
}

std::string HeaderCopies::Problem() const {
    if (!first || !last) {
        return std::string("its ") + (first ? "last" : "first") +
               " copy is damaged or missing; the other one is used";
    }
    return first->session != last->session
               ? "one copy is older than the other: somebody was interrupted when it was written"
               : "";
}

HeaderCopies ReadHeaders(uint64_t member_bytes, const ReadUnit &read) {
    HeaderCopies copies;
    if (member_bytes < 2 * ALLOCATION_UNIT_BYTES) {
        return copies;
    }
    AlignedBuffer unit(ALLOCATION_UNIT_BYTES);
    if (read(0, unit.Data())) {
        copies.first = Decode(unit.Data(), copies.unknown_version);
        // What has become a volume of its own is no member any more, whatever its end still says.
        if (memcmp(unit.Data(), "RAWDUCK", sizeof("RAWDUCK")) == 0) {
            return copies;
        }
    }
    if (copies.unknown_version == 0 && read(LastUnit(member_bytes), unit.Data())) {
        copies.last = Decode(unit.Data(), copies.unknown_version);
    }
    const bool together = copies.first && copies.last && copies.first->stripe == copies.last->stripe &&
                          copies.first->index == copies.last->index;
    if (copies.first && !together) {
        copies.last.reset();
    }
    return copies;
}

HeaderCopies ReadHeaders(Device &device) {
    return ReadHeaders(device.CurrentCapacity(), [&](uint64_t offset, char *unit) {
        int error_number = 0;
        return Transfer(device, Opcode::READ, offset, unit, error_number);
    });
}

MemberHeader MakeHeader(const Stripe &stripe, size_t index, uint32_t lba_size,
                        const WritingSession &session) {
    MemberHeader header;
    memset(static_cast<void *>(&header), 0, sizeof(header));
    memcpy(header.magic, MEMBER_MAGIC, sizeof(MEMBER_MAGIC));
    header.version = MEMBER_VERSION;
    header.stripe = stripe.uuid;
    header.index = static_cast<uint32_t>(index);
    header.count = static_cast<uint32_t>(stripe.members.size());
    header.chunk_bytes = stripe.chunk_bytes;
    header.data_start = stripe.data_start;
    header.generation = session.generation;
    header.session = session.id;
    header.predecessor = session.predecessor;
    header.lba_size = lba_size;
    for (size_t i = 0; i < stripe.members.size(); i++) {
        const StripeMember &member = stripe.members[i];
        header.members[i].uuid = member.uuid;
        header.members[i].inode = member.name.inode;
        CopyText(header.members[i].serial, member.name.serial);
        CopyText(header.members[i].path, member.name.path);
    }
    return header;
}

MemberName RecordedName(const MemberHeader &header, size_t index) {
    const MemberHeader::Name &name = header.members[index];
    return {TextOf(name.path), TextOf(name.serial), name.inode};
}

void WriteHeader(Device &device, HeaderCopy copy, const MemberHeader &header) {
    AlignedBuffer unit;
    unit.Append(reinterpret_cast<const char *>(&header), sizeof(header));
    unit.AppendZeros(ALLOCATION_UNIT_BYTES - sizeof(header));
    const uint32_t crc = ChecksumOf(unit.Data());
    memcpy(unit.Data() + offsetof(MemberHeader, crc), &crc, sizeof(crc));
    Write(device, RecordedName(header, header.index).path,
          copy == HeaderCopy::FIRST ? 0 : LastUnit(device.CurrentCapacity()), unit.Data());
}

void EraseHeaders(Device &device, const std::string &name) {
    AlignedBuffer unit;
    unit.AppendZeros(ALLOCATION_UNIT_BYTES);
    for (const uint64_t offset : {uint64_t(0), LastUnit(device.CurrentCapacity())}) {
        Write(device, name, offset, unit.Data());
    }
}

} // namespace rawduck
