#include "tree_rows.hpp"

#include "io/device/memory_device.hpp"
#include "io/open_device.hpp"
#include "volume/journal/journal.hpp"
#include "volume/journal/load_metadata.hpp"
#include "volume/registry.hpp"
#include "volume/setup/empty_volume.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

namespace rawduck {

namespace {

constexpr uint64_t CAPACITY = 16 * 1024 * GIB;
constexpr uint64_t CACHE_BYTES = 64 * MIB;
constexpr uint64_t SMALL_FILES = 999900, SMALL_EXTENTS = 5;
constexpr uint64_t LARGE_FILES = 100, LARGE_EXTENTS = 50000;
constexpr uint64_t RECORD_FILES = 1000; //!< small files of one record
constexpr uint64_t HUGE_EXTENTS = 1000000;

using Clock = std::chrono::steady_clock;

double UsSince(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

//! Zones of free space, of which there are plenty.
class FreeSpaceZones final : public Journal::Zones {
  public:
    explicit FreeSpaceZones(LoadedMetadata &loaded) : loaded_(loaded) {}
    uint64_t TakeZone() override {
        std::lock_guard<std::mutex> guard(mutex_);
        return loaded_.space->AllocateAligned(ZONE_UNITS);
    }
    void GiveZone(uint64_t start) override {
        std::lock_guard<std::mutex> guard(mutex_);
        loaded_.space->Free(start, ZONE_UNITS);
    }
    uint64_t SpareZones() const override { return UINT32_MAX; }
    void CheckpointBegins() override {}
    void CheckpointIsDurable(uint64_t) override {}

  private:
    std::mutex mutex_; //!< guards loaded_.space
    LoadedMetadata &loaded_;
};

//! A mounted volume whose files lie in pieces of one unit, every third of the upper half.
class Metadata {
  public:
    explicit Metadata(const Target &target)
        : io(OpenDevice(target, DeviceOptions()), BlockIoOptions(), target.name, std::make_shared<IoStats>()),
          loaded(LoadMetadata(io, CACHE_BYTES)), zones(loaded),
          journal(io, loaded.image, *loaded.trees, zones) {
        journal.Begin();
    }

    Extent NextExtent(uint64_t file_unit) {
        const Extent extent{file_unit, next, 1};
        next += 3;
        return extent;
    }
    void AddFile(JournalRecord &record, uint64_t id, uint64_t extents) {
        Item create(ItemType::CREATE, id);
        create.kind = static_cast<uint8_t>(FileKind::DATABASE);
        create.name = "directory/file" + std::to_string(id) + ".duckdb";
        record.items.push_back(std::move(create));
        AddExtents(record, id, 0, extents);
    }
    void AddExtents(JournalRecord &record, uint64_t id, uint64_t from, uint64_t extents) {
        Item places(ItemType::EXTENTS, id), size(ItemType::SIZE, id);
        for (uint64_t i = 0; i < extents; i++) {
            places.extents.push_back(NextExtent(from + i));
        }
        size.size = (from + extents) * ALLOCATION_UNIT_BYTES;
        record.items.push_back(std::move(places));
        record.items.push_back(std::move(size));
    }
    //! A file of so many extents, in several records.
    void MakeFile(uint64_t id, uint64_t extents) {
        constexpr uint64_t PIECE = 25000;
        for (uint64_t done = 0; done < extents; done += PIECE) {
            JournalRecord record;
            done == 0 ? AddFile(record, id, std::min(PIECE, extents))
                      : AddExtents(record, id, done, std::min(PIECE, extents - done));
            Append(record);
        }
    }
    void Append(const JournalRecord &record) {
        journal.Append(record);
        journal.WriteCheckpoint();
    }
    //! What DuckDB's checkpoint of a database makes last: three pages of headers lie elsewhere. Returns microseconds.
    double HeaderSyncUs(uint64_t id) {
        JournalRecord record;
        record.items.emplace_back(ItemType::REMAP, id);
        for (uint64_t page = 0; page < 3; page++) {
            record.items.back().extents.push_back(NextExtent(page));
        }
        const auto begin = Clock::now();
        journal.Append(record);
        return UsSince(begin);
    }

    BlockIo io;
    LoadedMetadata loaded;
    FreeSpaceZones zones;
    Journal journal;
    uint64_t next = CAPACITY / ALLOCATION_UNIT_BYTES / 2;
};

double Percentile(std::vector<double> &values, double share) {
    const auto at = values.begin() + static_cast<long>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

Target NewVolume(const std::string &name) {
    MemoryTargetOptions options;
    options.capacity_bytes = CAPACITY;
    options.lba_size = 512;
    CreateMemoryTarget(name, options);
    const Target target = ResolveTarget("memory:" + name);
    BlockIo io(OpenDevice(target, DeviceOptions()), BlockIoOptions(), target.name,
               std::make_shared<IoStats>());
    WriteSuperblocks(io, EmptyVolume(MakeTreeSuperblock(CAPACITY, 512, MakeUuid(), "", 0)), [] {});
    return target;
}

void PrintMount() {
    const Target target = NewVolume("tree-mount");
    uint64_t records = 0;
    {
        Metadata metadata(target);
        uint64_t id = 1;
        const auto begin = Clock::now();
        for (uint64_t i = 0; i < LARGE_FILES; i++) {
            metadata.MakeFile(id++, LARGE_EXTENTS);
        }
        for (uint64_t made = 0; made < SMALL_FILES; made += RECORD_FILES) {
            JournalRecord record;
            for (uint64_t i = 0; i < std::min(RECORD_FILES, SMALL_FILES - made); i++) {
                metadata.AddFile(record, id++, SMALL_EXTENTS);
            }
            metadata.Append(record);
        }
        const double us = UsSince(begin);
        const uint64_t extents = LARGE_FILES * LARGE_EXTENTS + SMALL_FILES * SMALL_EXTENTS;
        printf("\nformat 2: %lu files, %lu extents: %.1f us for each extent made, %.0f MiB of pages\n",
               id - 1, extents, us / static_cast<double>(extents),
               static_cast<double>(metadata.loaded.trees->pages.UsedPages() * TREE_PAGE_BYTES) / MIB);
        // Until the log is as long as it gets before the next commit has to wait for a checkpoint.
        const uint64_t epoch = metadata.journal.Epoch();
        while (metadata.journal.Epoch() == epoch || records % 10000 != 0) {
            metadata.HeaderSyncUs(1 + records++ % LARGE_FILES);
        }
    }
    for (const char *what : {"cold", "again"}) {
        const auto begin = Clock::now();
        Metadata metadata(target);
        uint64_t replayed = 0;
        for (const LogPart &part : metadata.loaded.image.log) {
            replayed += part.records;
        }
        printf("mount %s: %.0f ms, with %lu records of the log\n", what, UsSince(begin) / 1e3, replayed);
    }
    printf("mounted as a volume, every page checked, every file loaded: %.0f ms\n",
           PinVolume(target.name, MountOptions())->Info().mount_ms);
    DropMemoryTarget("tree-mount");
}

void PrintCommits() {
    const Target target = NewVolume("tree-commit");
    Metadata metadata(target);
    metadata.MakeFile(1, HUGE_EXTENTS);
    constexpr int SYNCS = 100000;
    double alone = 0;
    for (int i = 0; i < SYNCS; i++) {
        alone += metadata.HeaderSyncUs(1);
        metadata.journal.WriteCheckpoint();
    }
    std::vector<double> quiet, beside;
    std::atomic<bool> stop{false};
    std::thread checkpoints([&] {
        while (!stop) {
            if (!metadata.journal.WriteCheckpoint()) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        }
    });
    const uint64_t before = metadata.journal.Checkpoints();
    for (int i = 0; i < 4 * SYNCS; i++) {
        const bool pending = metadata.journal.CheckpointPending();
        (pending ? beside : quiet).push_back(metadata.HeaderSyncUs(1));
    }
    stop = true;
    checkpoints.join();
    printf("\nheader sync at %lu extents: %.1f us (no checkpoint beside it)\n", HUGE_EXTENTS, alone / SYNCS);
    printf("%20s %10s %10s %10s %10s\n", "commits", "number", "p50 us", "p99.9 us", "max us");
    printf("%20s %10zu %10.1f %10.1f %10.1f\n", "without checkpoint", quiet.size(), Percentile(quiet, 0.5),
           Percentile(quiet, 0.999), Percentile(quiet, 1));
    printf("%20s %10zu %10.1f %10.1f %10.1f\n", "beside checkpoints", beside.size(), Percentile(beside, 0.5),
           Percentile(beside, 0.999), Percentile(beside, 1));
    printf("%lu checkpoints\n", metadata.journal.Checkpoints() - before);
    DropMemoryTarget("tree-commit");
}

} // namespace

void PrintTreeRows() {
    PrintMount();
    PrintCommits();
}

} // namespace rawduck
