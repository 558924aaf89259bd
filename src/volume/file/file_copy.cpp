//! What lies in one place of the target and is to lie in another, unchanged. A mount reads the old place until the next publish
//! switches to the new one, as when contents are replaced.

#include "volume/file/file.hpp"

#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

// Its first `valid` bytes go along. Under the exclusive gate, so that nobody writes there meanwhile.
void File::CopyTo(const Extent &fresh, uint64_t valid) {
    RAWDUCK_INVARIANT(valid <= fresh.units * ALLOCATION_UNIT_BYTES, "what is copied has its place");
    if (valid > 0) {
        AlignedBuffer content(valid);
        ReadDevice(content.Data(), valid, fresh.file_unit * ALLOCATION_UNIT_BYTES);
        const uint64_t place = fresh.start * ALLOCATION_UNIT_BYTES;
        context_.log.BeforeOverwrite(place, valid);
        Request request;
        request.opcode = Opcode::WRITE;
        request.segments.push_back(Segment{place, content.Data(), valid, PlacementOf(kind_)});
        context_.io.Execute(request);
        unflushed_ = true;
    }
    Moved moved;
    moved.units = fresh.units;
    std::unique_lock<std::shared_mutex> guard(map_mutex_);
    SwitchTo({fresh}, moved);
}

std::optional<Extent> File::ExtentAt(uint64_t unit) const {
    const uint64_t end = durable_size_ / ALLOCATION_UNIT_BYTES;
    std::shared_lock<std::shared_mutex> guard(map_mutex_);
    if (Removed() || unit >= std::min(end, map_.Units())) {
        return std::nullopt;
    }
    const Extent whole = map_.At(unit);
    const uint64_t into = unit - whole.file_unit;
    return Extent{unit, whole.start + into, std::min(whole.units - into, end - unit)};
}

bool File::MoveTo(const Extent &place) {
    RAWDUCK_INVARIANT(place.file_unit >= HEAD_UNITS, "headers are written again with each checkpoint anyway");
    std::unique_lock<Gate> gate(gate_);
    FinishCommit();
    if (!IsMovable(place)) {
        return false;
    }
    Growth growth(*this);
    growth.Take(MoreExtents(2), MetadataUse::GROW); // one becomes three
    CopyTo(place, place.units * ALLOCATION_UNIT_BYTES);
    return true;
}

void File::PublishMoved() {
    bool moved = false;
    {
        std::shared_lock<Gate> gate(
            gate_); // whoever moves something is done with it, or sees that it may not
        std::shared_lock<std::shared_mutex> guard(map_mutex_);
        moved = !moved_.empty();
    }
    if (moved) {
        Sync();
    }
}

// Under the exclusive gate. What is not durable is written in place, and what others have stays with them.
bool File::IsMovable(const Extent &place) const {
    const uint64_t on_device = tail_.Empty() ? Size() : tail_start_;
    const uint64_t end = std::min<uint64_t>(durable_size_, on_device) / ALLOCATION_UNIT_BYTES;
    if (Removed() || snapshot_ || IsTemp() || in_place > 0 || place.file_unit + place.units > end) {
        return false;
    }
    std::shared_lock<std::shared_mutex> guard(map_mutex_);
    const std::vector<Extent> pieces = map_.Slice(place.file_unit, place.file_unit + place.units);
    return !context_.space.AnyShared(pieces);
}

} // namespace rawduck
