#include "volume/setup/consent.hpp"

#include "common/error.hpp"
#include "io/open_device.hpp"
#include "target/lock/target_lock.hpp"
#include "volume/mount/in_use.hpp"
#include "volume/registry.hpp"
#include "volume/setup/examine_target.hpp"

#include <algorithm>
#include <set>

namespace rawduck {

namespace {

std::string ReasonsOf(const ExaminedTarget &target) {
    std::string reasons;
    for (const Occupant &occupant : target.occupants) {
        reasons += (reasons.empty() ? "" : "; ") + occupant.what;
    }
    return reasons;
}

void RefuseInUse(const ExaminedTarget &target) {
    if (!std::all_of(target.occupants.begin(), target.occupants.end(),
                     [](const Occupant &occupant) { return occupant.forceable; })) {
        throw Error(ErrorCode::EXISTS, target.name + ": refused to format: " + ReasonsOf(target) +
                                           ". Release it first; --force does not override this");
    }
}

[[noreturn]] void ThrowOtherThanAgreed(const std::vector<ExaminedTarget> &targets) {
    std::string found;
    for (const ExaminedTarget &target : targets) {
        if (!target.occupants.empty()) {
            found += (found.empty() ? "" : ". On ") + target.name + " now: " + ReasonsOf(target);
        }
    }
    throw Error(ErrorCode::EXISTS,
                targets[0].name + ": refused to format: what lies there is not what was agreed to. " +
                    (found.empty() ? "Now nothing does" : "On " + found) +
                    ". Nothing was changed; look at it again (nvme_occupants() in SQL), and agree to that");
}

std::vector<Occupant> Examine(const std::string &name) {
    if (IsMissingFile(name)) {
        return {};
    }
    const Target target = ResolveTarget(name);
    const TargetReservation reservation(target, "formatted");
    if (target.kind == TargetKind::MEMORY) {
        return MemoryOccupants(target);
    }
    TargetLock lock(target, TargetLock::Mode::EXCLUSIVE);
    RequireNoReaders(target, "formatted");
    if (target.kind != TargetKind::VFIO_FUNCTION) {
        return FindOccupants(target, ClaimCheck::SKIP); // we have the claim
    }
    DeviceOptions device;
    device.lock = &lock;
    BlockIo io(OpenDevice(target, device), BlockIoOptions(), target.name, std::make_shared<IoStats>());
    return OccupantsThrough(target, io);
}

} // namespace

std::vector<ExaminedTarget> ExamineTargets(const std::vector<std::string> &names) {
    std::vector<ExaminedTarget> targets;
    for (const std::string &name : names) {
        targets.push_back({name, Examine(name)});
        RefuseInUse(targets.back());
    }
    return targets;
}

void RefuseOccupied(const std::vector<ExaminedTarget> &targets, const FormatOptions &options) {
    std::set<std::string> found;
    for (const ExaminedTarget &target : targets) {
        RefuseInUse(target);
        if (!options.force && !target.occupants.empty()) {
            throw Error(ErrorCode::EXISTS, target.name + ": refused to format: " + ReasonsOf(target) +
                                               ". Formatting destroys what is there; if that is what you "
                                               "want, say --force (force := true in SQL)");
        }
        for (const Occupant &occupant : target.occupants) {
            found.insert(occupant.identity);
        }
    }
    if (options.agreed && found != std::set<std::string>(options.agreed->begin(), options.agreed->end())) {
        ThrowOtherThanAgreed(targets);
    }
}

} // namespace rawduck
