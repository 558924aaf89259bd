//! A volume of format 2 on a simulated medium, with random records and the data that they publish, for tests.
#pragma once

#include "common/crc32c.hpp"
#include "io/device/simulated/simulated_device.hpp"
#include "support/catalog_changes.hpp"
#include "support/hooked_device.hpp"
#include "support/killed_at_flush.hpp"
#include "support/volume_fixture.hpp"
#include "volume/journal/journal.hpp"
#include "volume/journal/load_metadata.hpp"
#include "volume/setup/empty_volume.hpp"

#include <list>

namespace rawduck {

using Medium = std::shared_ptr<SimulatedMedium>;

inline const Target JOURNAL_TARGET = ResolveTarget("simulated:journal");
constexpr uint32_t JOURNAL_LBA = 512;

inline std::unique_ptr<BlockIo> OpenMedium(const Medium &medium, uint64_t flushes = UINT64_MAX) {
    auto device = std::make_unique<HookedDevice>(OpenSimulatedDevice(medium, JOURNAL_TARGET, DeviceOptions()),
                                                 std::make_shared<CommandHook>());
    return std::make_unique<BlockIo>(std::make_unique<KilledAtFlush>(std::move(device), flushes),
                                     BlockIoOptions(), JOURNAL_TARGET.name, std::make_shared<IoStats>());
}

//! Damages one copy of the superblock.
inline void DamageSuperblock(const Medium &medium, int copy) {
    const uint64_t lbas = medium->Options().capacity_bytes / JOURNAL_LBA;
    medium->Inject(SimulatedFault::CORRUPTION, copy == 0 ? 0 : lbas - ALLOCATION_UNIT_BYTES / JOURNAL_LBA);
}

//! With a short log, so that there are many checkpoints.
inline Medium JournalMedium(SimulatedFua fua = SimulatedFua::HONOURED, uint64_t log_bytes = 32 * KIB) {
    SimulatedOptions options;
    options.capacity_bytes = 32 * MIB;
    options.lba_size = options.atomic_write_bytes = JOURNAL_LBA; // so that pages and superblocks are torn
    options.fua = fua;
    auto medium = std::make_shared<SimulatedMedium>(options);
    TreeSuperblock superblock =
        MakeTreeSuperblock(options.capacity_bytes, JOURNAL_LBA, MakeUuid(), "test", 1);
    superblock.log_units = log_bytes / ALLOCATION_UNIT_BYTES;
    superblock.log_start[1] = superblock.log_start[0] + superblock.log_units;
    SealSuperblock(superblock);
    WriteSuperblocks(*OpenMedium(medium), EmptyVolume(superblock), [] {});
    return medium;
}

//! What a mount is to find.
struct JournalState {
    Catalog catalog;
    std::map<uint64_t, char> data; //!< allocation unit -> what it is filled with
};

//! Zones from free space, all of which go back that no pages lie in.
class SpaceZones final : public Journal::Zones {
  public:
    explicit SpaceZones(FreeSpace &space) : space_(space) {}
    uint64_t TakeZone() override {
        std::lock_guard<std::mutex> guard(mutex);
        return space_.AllocateAligned(ZONE_UNITS);
    }
    void GiveZone(uint64_t start) override {
        std::lock_guard<std::mutex> guard(mutex);
        EXPECT_TRUE(space_.Free(start, ZONE_UNITS));
    }
    uint64_t SpareZones() const override { return UINT64_MAX; }
    void CheckpointBegins() override {}
    void CheckpointIsDurable(uint64_t) override {}

    std::mutex mutex; //!< guards the space

  private:
    FreeSpace &space_;
};

class JournalStore {
  public:
    explicit JournalStore(const Medium &medium_p, uint64_t flushes = UINT64_MAX)
        : medium(medium_p), io(OpenMedium(medium, flushes)), loaded(LoadMetadata(*io, MIB, CheckPages::ALL)),
          zones(*loaded.space), journal(*io, loaded.image, *loaded.trees, zones) {
        EXPECT_TRUE(loaded.problems.empty()) << loaded.problems.front();
    }

    //! The next of the random records, with some of the data that it publishes. `state` is the one after it.
    struct Next {
        JournalRecord record;
        std::vector<Extent> freed;
    };
    Next Prepare(CatalogChanges &changes, JournalState &state) {
        Next next;
        journal.Begin(); // before data is written
        {
            std::lock_guard<std::mutex> guard(zones.mutex);
            CatalogChanges::Record record = changes.Next(*loaded.space);
            next.record.items = std::move(record.items);
            next.freed = std::move(record.freed);
        }
        AddData(changes, next.record, state);
        for (const Extent &extent : next.freed) {
            state.data.erase(state.data.lower_bound(extent.start),
                             state.data.lower_bound(extent.start + extent.units));
        }
        state.catalog = changes.model;
        return next;
    }
    //! The record is durable.
    void Free(const Next &next) {
        std::lock_guard<std::mutex> guard(zones.mutex);
        for (const Extent &extent : next.freed) {
            EXPECT_TRUE(loaded.space->Free(extent.start, extent.units));
        }
    }
    void Append(CatalogChanges &changes, JournalState &state) {
        const Next next = Prepare(changes, state);
        journal.Append(next.record);
        Free(next);
    }

    //! What is found is that state.
    std::string DifferenceTo(const JournalState &state) {
        std::shared_lock<std::shared_mutex> guard(loaded.trees->store.Mutex());
        const std::string found = TextOf(loaded.trees->catalog), expected = TextOf(state.catalog);
        if (found != expected) {
            return "found:\n" + found + "expected:\n" + expected;
        }
        for (const auto &[unit, fill] : state.data) {
            std::string content(ALLOCATION_UNIT_BYTES, '?');
            io->Read(unit * ALLOCATION_UNIT_BYTES, &content[0], content.size());
            if (content != std::string(ALLOCATION_UNIT_BYTES, fill)) {
                return "allocation unit " + std::to_string(unit) + " holds something else";
            }
        }
        return "";
    }

    Medium medium;
    std::unique_ptr<BlockIo> io;
    LoadedMetadata loaded;
    SpaceZones zones;
    Journal journal;

  private:
    // The first unit of each extent: covered by a checksum and written together with the record, or written before,
    // with a checksum or without.
    void AddData(CatalogChanges &changes, JournalRecord &record, JournalState &state) {
        const uint64_t way = changes.random() % 3;
        Item checksums(ItemType::DATA_CHECKSUM, 0);
        for (const Item &item : record.items) {
            for (const Extent &extent : item.extents) {
                const char fill = static_cast<char>(changes.random());
                buffers.emplace_back(ALLOCATION_UNIT_BYTES, fill);
                state.data[extent.start] = fill;
                const Segment segment{extent.start * ALLOCATION_UNIT_BYTES, &buffers.back()[0],
                                      ALLOCATION_UNIT_BYTES, PlacementClass::DATABASE};
                if (way == 0) {
                    record.writes.push_back(segment);
                } else {
                    io->Write(segment.device_offset, segment.data, segment.length);
                    record.cached = way == 1 ? JournalRecord::Cached::CHECKSUMMED
                                             : JournalRecord::Cached::NOT_CHECKSUMMED;
                }
                if (way < 2) {
                    checksums.checksums.push_back({segment.device_offset, ALLOCATION_UNIT_BYTES,
                                                   Crc32c(0, segment.data, segment.length)});
                }
            }
        }
        if (!checksums.checksums.empty()) {
            record.items.push_back(checksums);
        }
    }

    std::list<std::string> buffers;
};

} // namespace rawduck
