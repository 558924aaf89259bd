//! Volume::FormatStripe. Cut in between, no member holds a whole header of the new stripe, or all of them have the volume: what
//! was there is taken away first, then the volume is written, then the headers, each durable before the next.
#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/scope_exit.hpp"
#include "io/open_device.hpp"
#include "io/resolve_volume.hpp"
#include "target/inspect.hpp"
#include "target/lock/target_lock.hpp"
#include "target/occupants/same_bytes.hpp"
#include "volume/mount/in_use.hpp"
#include "volume/registry.hpp"
#include "volume/setup/consent.hpp"
#include "volume/setup/empty_volume.hpp"
#include "volume/setup/examine_target.hpp"
#include "volume/setup/prepared_file.hpp"

#include <algorithm>
#include <map>

namespace rawduck {

namespace {

//! What lies before the data of each member: its header.
constexpr uint64_t HEADER_BYTES = MIB;

[[noreturn]] void ThrowImpossible(const std::string &target_name, const std::string &why) {
    throw Error(ErrorCode::INVALID, target_name + ": cannot stripe a volume over it: " + why);
}

void CheckStripeOptions(const std::vector<std::string> &names, uint64_t chunk_bytes) {
    if (names.size() > STRIPE_MEMBERS_MAX) {
        ThrowImpossible(names.back(), std::to_string(names.size()) + " targets were named, and at most " +
                                          std::to_string(STRIPE_MEMBERS_MAX) + " are possible");
    }
    if (chunk_bytes < CHUNK_BYTES_MIN || chunk_bytes > CHUNK_BYTES_MAX ||
        !IsAligned(chunk_bytes, chunk_bytes)) {
        ThrowImpossible(names[0], "a chunk of " + std::to_string(chunk_bytes) +
                                      " bytes is not possible; give a power of two from 16K to 16M (--chunk, "
                                      "chunk in SQL)");
    }
}

void RequireStripable(const Target &target, const Target &first) {
    if (target.kind == TargetKind::MEMORY || target.kind == TargetKind::VFIO_FUNCTION) {
        ThrowImpossible(target.name,
                        "it is not a file or device that the kernel knows, where members are looked "
                        "for; use /dev/nvmeXnY, /dev/ngXnY or files");
    }
    if (target.kind != first.kind) {
        ThrowImpossible(target.name,
                        "it is of another kind than " + first.name +
                            "; give only block devices, only character devices (/dev/ngXnY) or only "
                            "files");
    }
}

//! A path that does not fit into a header would not be looked at again.
void RequireNamable(const StripeMember &member) {
    const size_t most = sizeof(MemberHeader::Name::path) - 1;
    if (HasNode(member.target.kind) && member.name.path.size() > most) {
        ThrowImpossible(member.target.name, "its path has " + std::to_string(member.name.path.size()) +
                                                " bytes, and members remember each other's path of at most " +
                                                std::to_string(most) +
                                                "; move it, or give it a shorter name");
    }
}

Stripe MakeStripe(const std::vector<std::string> &names, uint64_t chunk_bytes) {
    Stripe stripe;
    stripe.uuid = MakeUuid();
    stripe.chunk_bytes = chunk_bytes;
    stripe.data_start = std::max(HEADER_BYTES, chunk_bytes);
    for (const std::string &name : names) {
        StripeMember member;
        member.target = ResolveTarget(name);
        RequireStripable(member.target, stripe.members.empty() ? member.target : stripe.members[0].target);
        for (const StripeMember &other : stripe.members) {
            if (ShareBytes(member.target, other.target)) {
                ThrowImpossible(name, "it is, at least in part, the same as " + other.target.name +
                                          "; name each drive once");
            }
        }
        member.uuid = MakeUuid();
        member.name = NameOf(member.target);
        RequireNamable(member);
        stripe.members.push_back(std::move(member));
    }
    return stripe;
}

using Reservations = std::vector<std::unique_ptr<TargetReservation>>;

//! In the order of their identities, since each waits for others.
Reservations Reserve(const Target &target) {
    std::map<std::string, Target> sorted;
    for (const Target &part : PartsOf(target)) {
        sorted.emplace(part.identity, part);
    }
    Reservations reservations;
    for (const auto &[identity, part] : sorted) {
        reservations.push_back(std::make_unique<TargetReservation>(part, "formatted"));
    }
    return reservations;
}

//! The files of a stripe, by their number; those that are neither made nor made longer are not there.
class PreparedFiles {
  public:
    explicit PreparedFiles(const std::vector<std::string> &names) : names_(names) {}
    ~PreparedFiles() = default;
    PreparedFiles(const PreparedFiles &) = delete;
    PreparedFiles &operator=(const PreparedFiles &) = delete;

    //! Makes those that are missing.
    void Make(const FormatOptions &options) {
        for (size_t i = 0; i < names_.size(); i++) {
            if (MustBeCreated(names_[i], options)) {
                files_.emplace(i, names_[i]);
            }
        }
    }
    void Locked(const std::vector<Target> &parts, const TargetLock &lock) {
        for (auto &[i, file] : files_) {
            file.Locked(lock.DescriptorOf(parts[i]));
        }
    }
    void Reserve(const std::vector<Target> &parts, const TargetLock &lock, uint64_t size_bytes) {
        for (size_t i = 0; i < parts.size(); i++) {
            files_.try_emplace(i, parts[i].path)
                .first->second.Reserve(lock.DescriptorOf(parts[i]), size_bytes);
        }
    }
    void ForEach(void (PreparedFile::*act)()) {
        for (auto &[i, file] : files_) {
            (file.*act)();
        }
    }

  private:
    const std::vector<std::string> names_;
    std::map<size_t, PreparedFile> files_;
};

} // namespace

// Locked first, then looked at, then changed, as Volume::Format.
void Volume::FormatStripe(const std::vector<std::string> &names, const FormatOptions &options) {
    if (names.size() < STRIPE_MEMBERS_MIN) {
        throw Error(ErrorCode::INVALID, "a stripe has at least two targets");
    }
    CheckFormatOptions(names[0], options);
    const uint64_t chunk_bytes = options.chunk_bytes == 0 ? CHUNK_BYTES_DEFAULT : options.chunk_bytes;
    CheckStripeOptions(names, chunk_bytes);
    PreparedFiles files(names);
    files.Make(options);
    const Target target = StripedTarget(names[0], MakeStripe(names, chunk_bytes));
    const std::vector<Target> parts = PartsOf(target);
    const Reservations reservations = Reserve(target);
    const TargetLock lock(target, TargetLock::Mode::EXCLUSIVE);
    const ScopeExit undo([&files] { files.ForEach(&PreparedFile::Undo); });
    files.Locked(parts, lock);
    std::vector<ExaminedTarget> examined;
    for (const Target &part : parts) {
        RequireNoReaders(part, "formatted");
        RequireWritable(part, HasNode(part.kind) && InspectTarget(part).read_only);
        examined.push_back({part.name, FindOccupants(part, ClaimCheck::SKIP)}); // we have the claim
    }
    RefuseOccupied(examined, options);
    const uint64_t size_bytes = AlignDown(options.size_bytes, ALLOCATION_UNIT_BYTES);
    if (size_bytes != 0 && target.kind != TargetKind::REGULAR_FILE) {
        throw Error(ErrorCode::INVALID, names[0] + ": a device is formatted whole; leave out --size");
    }
    if (size_bytes != 0) {
        files.Reserve(parts, lock, size_bytes);
    }
    DeviceOptions device;
    device.lock = &lock;
    std::unique_ptr<StripedDevice> opened = OpenStripe(target, device, StripedDevice::Headers::NONE);
    StripedDevice &striped = *opened;
    BlockIo io(std::move(opened), BlockIoOptions(), target.name, std::make_shared<IoStats>());
    RequireWritable(target, io.Caps().read_only);
    uint32_t lba_size = 0;
    for (const Target &part : parts) {
        lba_size = std::max(lba_size, ChooseLbaSize(part, options, io.Caps().lba_size));
    }
    const EmptyVolume fresh(
        MakeTreeSuperblock(io.Caps().capacity_bytes, lba_size, MakeUuid(), options.label, NowUs()));
    files.ForEach(&PreparedFile::KeepName);
    striped.EraseMembers();
    files.ForEach(&PreparedFile::KeepLength);
    WipeSuperblocks(io, fresh);
    WriteSuperblocks(io, fresh, [] {});
    if (target.kind == TargetKind::REGULAR_FILE) {
        WriteAreas(io, fresh);
    }
    striped.WriteHeaders({1, MakeUuid(), Uuid{}});
    files.ForEach(&PreparedFile::Keep);
}

} // namespace rawduck
