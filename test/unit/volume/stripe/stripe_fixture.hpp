//! Simulated devices that are striped, for tests.
#pragma once

#include "io/device/simulated/simulated_device.hpp"
#include "io/open_device.hpp"
#include "io/resolve_volume.hpp"
#include "support/volume_fixture.hpp"

#include <memory>
#include <string>
#include <vector>

namespace rawduck {

using Media = std::vector<std::shared_ptr<SimulatedMedium>>;

inline std::string MemberNameOf(size_t i) {
    return "simulated:member" + std::to_string(i);
}

inline std::vector<std::string> MemberNames(size_t count) {
    std::vector<std::string> names;
    for (size_t i = 0; i < count; i++) {
        names.push_back(MemberNameOf(i));
    }
    return names;
}

//! Gives the names to these media.
inline void PutMembers(const Media &media) {
    for (size_t i = 0; i < media.size(); i++) {
        PutSimulatedTarget(MemberNameOf(i).substr(10), media[i]);
    }
}

inline SimulatedOptions MemberOptions(uint32_t lba_size = 512) {
    SimulatedOptions options;
    options.capacity_bytes = 12 * MIB;
    options.lba_size = options.atomic_write_bytes = lba_size;
    return options;
}

//! Each of these options is a device, and all of them a volume.
inline Media FormatMembers(const std::vector<SimulatedOptions> &options, uint64_t chunk_bytes = 64 * KIB) {
    Media media;
    for (const SimulatedOptions &each : options) {
        media.push_back(std::make_shared<SimulatedMedium>(each));
    }
    PutMembers(media);
    FormatOptions format;
    format.chunk_bytes = chunk_bytes;
    Volume::FormatStripe(MemberNames(media.size()), format);
    return media;
}

inline std::shared_ptr<Volume> MountMembers(size_t named = 0) {
    return Volume::Mount(ResolveVolume(MemberNameOf(named)), MountOptions(), std::make_shared<IoStats>());
}

//! All of them after a cut at one moment; each loses what it has not flushed itself.
inline Media CutAt(const Media &media, uint64_t moment, uint64_t seed) {
    Media survivors;
    for (size_t i = 0; i < media.size(); i++) {
        PowerCutReport report;
        survivors.push_back(media[i]->PowerCut(media[i]->EventsUntil(moment), seed * 31 + i, report));
    }
    return survivors;
}

//! Whether each of them says that it is a member of some stripe.
inline bool AllAreMembers(const Media &media) {
    for (const auto &medium : media) {
        if (!ReadHeaders(*OpenSimulatedDevice(medium, ResolveTarget("simulated:x"), {})).Newest()) {
            return false;
        }
    }
    return true;
}

//! As MountMembers, of media that have no name; `place` is added to those under which they are found.
inline std::shared_ptr<Volume> MountMedia(const Media &media, const std::string &place = "") {
    std::vector<std::unique_ptr<Device>> devices;
    Stripe stripe;
    for (size_t i = 0; i < media.size(); i++) {
        StripeMember member;
        member.target = ResolveTarget(MemberNameOf(i));
        member.target.name += place;
        devices.push_back(OpenSimulatedDevice(media[i], member.target, {}));
        const HeaderCopies copies = ReadHeaders(*devices.back());
        const MemberHeader *header = copies.Newest();
        if (!header) {
            throw Error(ErrorCode::CORRUPT, member.target.name + ": no header is left");
        }
        member.uuid = header->members[i].uuid;
        stripe.uuid = header->stripe;
        stripe.chunk_bytes = header->chunk_bytes;
        stripe.data_start = header->data_start;
        stripe.members.push_back(std::move(member));
    }
    const Target target = StripedTarget(MemberNameOf(0), stripe);
    return Volume::MountDevice(target,
                               std::make_unique<StripedDevice>(target.name, stripe, std::move(devices),
                                                               StripedDevice::Headers::REQUIRE),
                               MountOptions(), std::make_shared<IoStats>());
}

} // namespace rawduck
