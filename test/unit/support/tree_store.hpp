//! A store of metadata trees with one tree, on a simulated medium, for tests.
#pragma once

#include "io/device/simulated/simulated_device.hpp"
#include "support/volume_fixture.hpp"
#include "volume/tree/tree.hpp"

#include <map>
#include <set>

namespace rawduck {

constexpr uint64_t TREE_TEST_CAPACITY = 256 * MIB;
constexpr uint32_t TREE_TEST_LBA = 512;
constexpr uint64_t TREE_TEST_START = ZONE_UNITS;
constexpr uint64_t TREE_TEST_END = TREE_TEST_CAPACITY / ALLOCATION_UNIT_BYTES;
inline const Target TREE_TARGET = ResolveTarget("simulated:tree");
constexpr Uuid TREE_UUID = {1, 2, 3};

//! What a superblock would say of a checkpoint.
struct TreeCheckpoint {
    uint64_t generation = 0;
    TreeRoot root;
    std::string map; //!< as it was written to map_units
    std::vector<uint64_t> map_units;
    uint64_t events = 0; //!< of the medium, when it was durable
    std::map<std::string, std::string> contents;
};

//! Hands out zones of a device on which there is nothing else.
class FreeZones {
  public:
    FreeZones() {
        for (uint64_t start = TREE_TEST_START; start + ZONE_UNITS <= TREE_TEST_END; start += ZONE_UNITS) {
            free.insert(start);
        }
    }
    std::set<uint64_t> free;
};

inline std::shared_ptr<SimulatedMedium> TreeMedium() {
    SimulatedOptions options;
    options.capacity_bytes = TREE_TEST_CAPACITY;
    options.lba_size = options.atomic_write_bytes = TREE_TEST_LBA; // so that pages are torn
    return std::make_shared<SimulatedMedium>(options);
}

//! A store with one tree, on a medium. Continues from a checkpoint where there is one.
class TreeStore {
  public:
    explicit TreeStore(const std::shared_ptr<SimulatedMedium> &medium_p,
                       const TreeCheckpoint &from = TreeCheckpoint(), uint64_t cache_bytes = MIB)
        : medium(medium_p), io(OpenSimulatedDevice(medium, TREE_TARGET, DeviceOptions()), BlockIoOptions(),
                               TREE_TARGET.name, std::make_shared<IoStats>()),
          space(
              [this]() -> uint64_t {
                  if (zones.free.empty()) {
                      return 0;
                  }
                  const uint64_t start = *zones.free.begin();
                  zones.free.erase(zones.free.begin());
                  return start;
              },
              [this](uint64_t start) { EXPECT_TRUE(zones.free.insert(start).second); }),
          pages(io, TREE_UUID, space, from.generation + 1, cache_bytes), tree(pages, from.root),
          map_units(from.map_units) {
        EXPECT_EQ(space.Load(from.map, TREE_TEST_START, TREE_TEST_END), "");
        for (const uint64_t start : space.Zones()) {
            EXPECT_EQ(zones.free.erase(start), 1u);
        }
    }

    TreeCheckpoint Begin(const std::map<std::string, std::string> &contents = {}) {
        TreeCheckpoint checkpoint;
        std::unique_lock<std::shared_mutex> guard(pages.Mutex());
        checkpoint.contents = contents;
        PageStore::Frozen frozen = pages.Freeze(map_units);
        checkpoint.generation = frozen.generation;
        checkpoint.root = tree.Root();
        checkpoint.map = frozen.map;
        checkpoint.map_units = map_units = frozen.map_units;
        return checkpoint;
    }
    void Finish(TreeCheckpoint &checkpoint) {
        pages.WriteFrozen();
        io.Flush();
        checkpoint.events = medium->Events();
        std::unique_lock<std::shared_mutex> guard(pages.Mutex());
        pages.FrozenIsDurable();
    }
    TreeCheckpoint Write() {
        TreeCheckpoint checkpoint = Begin();
        Finish(checkpoint);
        return checkpoint;
    }

    std::map<std::string, std::string> Contents() {
        std::map<std::string, std::string> contents;
        tree.Scan("", [&](std::string_view key, std::string_view value) {
            EXPECT_TRUE(contents.empty() || contents.rbegin()->first < key);
            contents.emplace(key, value);
            return true;
        });
        return contents;
    }
    //! The tree is whole, and no page is in use but its own and those of the map.
    void RequireSound() {
        std::set<uint64_t> used(map_units.begin(), map_units.end());
        const auto problems = tree.FindProblems([&](const PagePointer &page) {
            EXPECT_TRUE(space.InUse(page.unit));
            EXPECT_TRUE(used.insert(page.unit).second) << "two pages share a place";
        });
        EXPECT_TRUE(problems.empty()) << problems.front();
        EXPECT_EQ(space.UsedPages(), used.size());
    }

    std::shared_ptr<SimulatedMedium> medium;
    BlockIo io;
    FreeZones zones;
    PageSpace space;
    PageStore pages;
    Tree tree;
    std::vector<uint64_t> map_units;
};

} // namespace rawduck
