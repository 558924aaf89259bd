//! A volume of format 2 on a simulated medium, with random records and the data that they publish, for tests.
#pragma once

#include "common/crc32c.hpp"
#include "io/device/simulated/simulated_device.hpp"
#include "support/catalog_changes.hpp"
#include "support/volume_fixture.hpp"
#include "volume/journal/journal.hpp"
#include "volume/journal/load_metadata.hpp"

#include <list>

namespace rawduck {

using Medium = std::shared_ptr<SimulatedMedium>;

inline const Target JOURNAL_TARGET = ResolveTarget("simulated:journal");
constexpr uint32_t JOURNAL_LBA = 512;

inline std::unique_ptr<BlockIo> OpenMedium(const Medium &medium) {
    return std::make_unique<BlockIo>(OpenSimulatedDevice(medium, JOURNAL_TARGET, DeviceOptions()),
                                     BlockIoOptions(), JOURNAL_TARGET.name, std::make_shared<IoStats>());
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
    Journal::WriteSuperblocks(*OpenMedium(medium), superblock);
    return medium;
}

//! What a mount is to find.
struct JournalState {
    Catalog catalog;
    std::map<uint64_t, char> data; //!< allocation unit -> what it is filled with
};

class JournalStore {
  public:
    explicit JournalStore(const Medium &medium_p, CheckPages check = CheckPages::ALL)
        : medium(medium_p), io(OpenMedium(medium)), loaded(LoadMetadata(*io, MIB, check)),
          journal(*io, loaded.image, *loaded.trees, {[this] { return TakeZone(); }, [this](uint64_t zone) {
                                                         std::lock_guard<std::mutex> guard(space_mutex);
                                                         EXPECT_TRUE(loaded.space->Free(zone, ZONE_UNITS));
                                                     }}) {
        EXPECT_TRUE(loaded.problems.empty()) << loaded.problems.front();
    }

    //! Appends the next of the random records, and some of the data that it publishes.
    void Append(CatalogChanges &changes, JournalState &state) {
        CatalogChanges::Record next;
        JournalRecord record;
        {
            std::lock_guard<std::mutex> guard(space_mutex);
            next = changes.Next(*loaded.space);
            for (const Extent &extent : next.freed) {
                loaded.space->Load(extent);
            }
        }
        record.items = next.items;
        AddData(changes, record, state);
        for (const Extent &extent : next.freed) {
            state.data.erase(state.data.lower_bound(extent.start),
                             state.data.lower_bound(extent.start + extent.units));
        }
        state.catalog = changes.model;
        journal.Append(record);
        std::lock_guard<std::mutex> guard(space_mutex);
        for (const Extent &extent : next.freed) {
            EXPECT_TRUE(loaded.space->Free(extent.start, extent.units));
        }
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
    std::mutex space_mutex;
    Journal journal;

  private:
    uint64_t TakeZone() {
        std::lock_guard<std::mutex> guard(space_mutex);
        return loaded.space->AllocateAligned(ZONE_UNITS);
    }

    // The first unit of each extent. Covered by a checksum and written together with the record, or written before.
    void AddData(CatalogChanges &changes, JournalRecord &record, JournalState &state) {
        const bool checksummed = changes.random() % 2 == 0;
        Item checksums(ItemType::DATA_CHECKSUM, 0);
        for (const Item &item : record.items) {
            for (const Extent &extent : item.extents) {
                const char fill = static_cast<char>(changes.random());
                buffers.emplace_back(ALLOCATION_UNIT_BYTES, fill);
                state.data[extent.start] = fill;
                const Segment segment{extent.start * ALLOCATION_UNIT_BYTES, &buffers.back()[0],
                                      ALLOCATION_UNIT_BYTES, PlacementClass::DATABASE};
                if (checksummed) {
                    record.writes.push_back(segment);
                    checksums.checksums.push_back({segment.device_offset, ALLOCATION_UNIT_BYTES,
                                                   Crc32c(0, segment.data, segment.length)});
                } else {
                    io->Write(segment.device_offset, segment.data, segment.length);
                    record.cached = JournalRecord::Cached::NOT_CHECKSUMMED;
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
