//! What a file has that others have, too, is never written: it is replaced elsewhere, as all that is durable. One thing
//! that is durable is otherwise written in place: the allocation unit in which a file goes on, behind its last whole LBA.
//! What was appended before it was shared may go there all the same, since nobody else reads that; but only one file may
//! write there, and none that was cut.

#include "volume/file/file.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <algorithm>

namespace rawduck {

// Room for its metadata comes last: there is a destructor for all before.
File::File(const FileContext &context, uint64_t id, const CatalogEntry &entry, Cloned)
    : context_(context), id_(id), kind_(entry.kind), created_us_(entry.created_us), snapshot_(entry.snapshot),
      name_(entry.name), metadata_(context.room), modified_us_(entry.modified_us), published_(true) {
    TakeOver(entry);
    sharing_ = true;
    any_tail_fits_ = kind_ == FileKind::WAL && !snapshot_;
    any_tail_fits_ ? metadata_.BeginLog(SizeOfEntry()) : metadata_.Begin(SizeOfEntry());
}

std::unique_lock<Gate> File::BeginSharing() {
    std::unique_lock<Gate> gate(gate_);
    RAWDUCK_INVARIANT(Published() && !Removed() && !IsTemp(), "what is shared is durable");
    FinishCommit();
    if (!sharing_) {
        EntrySize more;
        {
            std::shared_lock<std::shared_mutex> guard(map_mutex_);
            more.references = 2 * (map_.Count() + replaced_.size());
        }
        Growth growth(*this);
        growth.Take(more, MetadataUse::CREATE);
        sharing_ = true;
    }
    return gate;
}

// Under the exclusive gate, before anything is appended.
void File::OwnEnd(Growth &growth) {
    if (!sharing_) {
        return;
    }
    const uint64_t end = tail_.Empty() ? Size() : tail_start_;
    const uint64_t unit = end / ALLOCATION_UNIT_BYTES;
    bool shared = false;
    {
        std::shared_lock<std::shared_mutex> guard(map_mutex_);
        for (const Extent &place : map_.Slice(unit, std::min(unit + 1, map_.Units()))) {
            shared = context_.space.AnyShared(place);
        }
    }
    if (shared) {
        const std::vector<Extent> fresh = AllocateOutOfPlace(unit, 1, growth);
        try {
            CopyTo(fresh.front(), end - unit * ALLOCATION_UNIT_BYTES);
        } catch (...) {
            context_.space.Free(fresh);
            throw;
        }
    }
}

void File::AddNotShared(const Extent &extent, std::vector<DeviceRange> &ranges) const {
    for (const Extent &part : context_.space.NotShared(extent)) {
        ranges.push_back({part.start * ALLOCATION_UNIT_BYTES, part.units * ALLOCATION_UNIT_BYTES});
    }
}

} // namespace rawduck
