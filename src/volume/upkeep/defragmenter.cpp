#include "volume/upkeep/defragmenter.hpp"

#include "common/error.hpp"
#include "volume/names/snapshot_name.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace rawduck {

namespace {

constexpr uint64_t STEP_UNITS = Defragmenter::STEP_BYTES / ALLOCATION_UNIT_BYTES;
constexpr uint64_t RUN_UNITS_MAX = Defragmenter::RUN_BYTES_MAX / ALLOCATION_UNIT_BYTES;
constexpr uint64_t LONG_UNITS = Defragmenter::LONG_BYTES / ALLOCATION_UNIT_BYTES;
//! ... and never more than this share of the free space, which others need meanwhile.
constexpr uint64_t FREE_SHARE = 4;
//! Of a file in very many pieces, so that it can be interrupted.
constexpr int PIECES_OF_STEP = 10000;
constexpr std::chrono::milliseconds WAIT_MAX{50};
//! For a place for one run while the device is being told of free space, which may go on for as long as there is some.
constexpr int WAITS_MAX = 100;

std::shared_ptr<File> FileToDefragment(const VolumeState &state, const std::string &name) {
    std::shared_lock<std::shared_mutex> guard(state.names_mutex);
    const std::shared_ptr<File> file = state.Find(name);
    if (!file) {
        state.ThrowNoFile(name);
    }
    state.RequireReadable(name);
    const char *why =
        file->Kind() == FileKind::DIRECTORY ? "a directory"
        : file->IsTemp()                    ? "a temporary file, which lasts as long as its query"
        : file->IsSnapshot() ? "a snapshot, of which nothing is moved; name the file that it is one of"
        : !DatabaseOfLog(name).empty() ? "a log, which ends with the next checkpoint of its database"
                                       : nullptr;
    if (why) {
        throw Error(ErrorCode::INVALID,
                    state.target.name + ": cannot defragment \"" + name + "\": it is " + why);
    }
    return file;
}

} // namespace

Defragmenter::Defragmenter(std::shared_ptr<VolumeState> volume, const std::string &name,
                           uint64_t bytes_per_second)
    : volume_(std::move(volume)), writing_(std::in_place, *volume_), file_(FileToDefragment(*volume_, name)),
      bytes_per_second_(bytes_per_second), extents_before_(Extents()) {}

Defragmenter::~Defragmenter() {
    if (target_.units > 0) {
        try {
            EndRun(); // given up in the middle of it
        } catch (const std::exception &) {
            // Both places have the contents: the file goes on with the old one after a crash, and with the new one before,
            // which the next Sync of the file makes durable, or fails with the error of this one.
        }
    }
}

bool Defragmenter::Step() {
    if (!MayGoOn()) {
        return true;
    }
    if (target_.units > 0) {
        CopyStep();
        return true;
    }
    if (LookOn()) {
        return true;
    }
    writing_->Finish();
    return false;
}

// Waits, if it was faster than it may be.
bool Defragmenter::MayGoOn() {
    if (bytes_per_second_ == 0) {
        return true;
    }
    const std::chrono::duration<double> due(static_cast<double>(copied_bytes_) /
                                            static_cast<double>(bytes_per_second_));
    const std::chrono::duration<double> early = due - (std::chrono::steady_clock::now() - begin_);
    if (early.count() <= 0) {
        return true;
    }
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(early, WAIT_MAX));
    return false;
}

// False at the end of the file.
bool Defragmenter::LookOn() {
    const Run run = FindRun();
    position_ = run.begin;
    if (run.pieces > 1) {
        const std::optional<Space::Piece> place = PlaceFor(run);
        if (!place && ++waits_ < WAITS_MAX) {
            return true;
        }
        waits_ = 0;
        if (place && place->units > 0) {
            target_ = Extent{run.begin, Index(place->start), place->units};
        } else {
            no_place_bytes_ += run.units * ALLOCATION_UNIT_BYTES;
            position_ += run.units;
        }
        return true;
    }
    return file_->ExtentAt(position_ + run.units).has_value();
}

// The next one. With one piece or none there is nothing to copy before its end.
Defragmenter::Run Defragmenter::FindRun() {
    const uint64_t units_max = std::min(RUN_UNITS_MAX, volume_->space.FreeUnits() / FREE_SHARE);
    Run run;
    run.begin = position_;
    for (int looked = 0; looked < PIECES_OF_STEP; looked++) {
        const std::optional<Extent> piece = file_->ExtentAt(run.begin + run.units);
        if (!piece) {
            break;
        }
        const bool is_long = piece->units >= LONG_UNITS;
        const bool shared = !is_long && volume_->space.AnyShared(*piece);
        const bool stays = is_long || shared || piece->units > units_max;
        if (stays || run.units + piece->units > units_max) {
            if (run.pieces > 1) {
                break;
            }
            run = Run();
            run.begin = piece->file_unit;
        }
        if (stays) {
            shared_bytes_ += shared ? piece->units * ALLOCATION_UNIT_BYTES : 0;
            run.begin += piece->units;
        } else {
            run.units += piece->units;
            run.pieces++;
            run.longest = std::max(run.longest, piece->units);
        }
    }
    return run;
}

// Where all of it fits, or so much that there are fewer pieces afterwards: two whole ones at least.
std::optional<Space::Piece> Defragmenter::PlaceFor(const Run &run) {
    AllocationUnit hint{0};
    if (const std::optional<Extent> before = file_->ExtentAt(run.begin - 1)) {
        hint = static_cast<AllocationUnit>(before->start + 1);
    }
    const uint64_t units_min = std::min(run.units, 2 * run.longest);
    return volume_->space.AllocateLong(run.units, hint, units_min, SpaceUse::CONTENT, WAIT_MAX);
}

void Defragmenter::CopyStep() {
    const Extent step{target_.file_unit, target_.start, std::min(target_.units, STEP_UNITS)};
    if (!file_->MoveTo(step)) {
        EndRun(); // truncated, removed or shared meanwhile
        return;
    }
    target_.file_unit += step.units;
    target_.start += step.units;
    target_.units -= step.units;
    copied_bytes_ += step.units * ALLOCATION_UNIT_BYTES;
    position_ = target_.file_unit;
    if (target_.units == 0) {
        EndRun();
    }
}

void Defragmenter::EndRun() {
    position_ += target_.units;
    if (const Extent rest = std::exchange(target_, Extent()); rest.units > 0) {
        volume_->space.Free({rest});
    }
    file_->Sync();
}

} // namespace rawduck
