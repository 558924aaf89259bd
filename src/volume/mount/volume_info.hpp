//! The properties of a mounted volume.
#pragma once

#include "io/reread_buffer.hpp"
#include "volume/spill/spill_counters.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

struct VolumeInfo {
    std::string target, uuid, label, engine, engine_reason, queue_mode;
    uint32_t format_version = 0, lba_size = 0, queue_depth = 0, memory_alignment = 0;
    uint64_t capacity_bytes = 0, used_bytes = 0, free_bytes = 0, metadata_bytes = 0;
    uint64_t growable_bytes = 0; //!< see Volume::GrowableBytes
    uint64_t largest_free_extent_bytes = 0;
    uint64_t files = 0, open_handles = 0, extents = 0;
    uint64_t epoch = 0, log_bytes = 0, log_records = 0;
    bool checkpoint_pending = false; //!< of the metadata: it is being written
    bool writable = false;           //!< holds the exclusive lock
    bool volatile_write_cache = false;
    double mount_ms = 0;
    std::string placement;             //!< see BlockIo::PlacementText
    std::string polling;               //!< on, or off and why
    std::string deallocate;            //!< "on", or "off: " and why
    uint64_t spill_buffer_bytes = 0;   //!< memory held for spilled blocks
    uint64_t spill_capacity_bytes = 0; //!< that it may hold, as far as is known
    SpillCounters spill;               //!< since the mount
    uint64_t bounce_bytes = 0;         //!< see BlockIo::BounceBytes
    uint64_t reread_buffer_bytes = 0;  //!< memory held for what is read again soon
    RereadCounters rereads;            //!< since the mount
    uint64_t metadata_cache_bytes = 0; //!< memory held for pages of the metadata trees
    std::string poisoned;              //!< why it refuses writes; empty when healthy
    std::vector<std::string>
        members;              //!< targets that it is striped over, in their order; empty: it lies on one
    uint64_t chunk_bytes = 0; //!< of which each of them has one in turn
    std::string warning;      //!< such as "superblock 1 is damaged; superblock 0 is in use"
};

} // namespace rawduck
