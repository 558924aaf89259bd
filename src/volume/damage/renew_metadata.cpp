#include "volume/damage/renew_metadata.hpp"

#include "common/invariant.hpp"
#include "volume/journal/journal.hpp"

namespace rawduck {

namespace {

//! Zones of the free space, but not where the log has freed something since the checkpoint: whoever mounts after an
//! interruption does not know yet that it is free.
class FreeZones final : public Journal::Zones {
  public:
    explicit FreeZones(LoadedMetadata &metadata) : space_(*metadata.space) {
        for (const Extent &extent : metadata.freed) {
            for (const Extent &part : space_.FreeParts(extent.start, extent.units)) {
                space_.Claim(part.start, part.units);
            }
        }
    }
    uint64_t TakeZone() override { return space_.AllocateAligned(ZONE_UNITS); }
    void GiveZone(uint64_t) override {} // the next mount finds it free
    uint64_t SpareZones() const override { return 0; }
    void CheckpointBegins() override {}
    void CheckpointIsDurable(uint64_t) override {}

  private:
    FreeSpace &space_;
};

} // namespace

void RenewMetadata(BlockIo &io, LoadedMetadata &metadata) {
    RAWDUCK_INVARIANT(metadata.space, "the log is applied to trees that are sound");
    FreeZones zones(metadata);
    Journal journal(io, metadata.image, *metadata.trees, zones);
    journal.Begin();
    journal.WriteCheckpoint();
}

} // namespace rawduck
