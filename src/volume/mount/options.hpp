//! What a volume is formatted and mounted with.
#pragma once

#include "common/interrupted.hpp"
#include "io/block_io.hpp"
#include "io/device/device_options.hpp"
#include "volume/space/deallocate_mode.hpp"
#include "volume/spill/spill_memory.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rawduck {

struct FormatOptions {
    uint64_t size_bytes =
        0; //!< for a regular file that is missing or to be resized, and for memory; 0: as is
    uint32_t lba_size =
        0;              //!< 512 or 4096; 0: the device's, 4096 for files, memory and disks with such blocks
    bool force = false; //!< destroy what FindOccupants reports, except mounts, swap and holders
    //! With force: the identities (Occupant) of what may be destroyed, and it is not formatted where anything else, or less,
    //! is found once it is locked. None: whatever is found.
    std::optional<std::vector<std::string>> agreed;
    std::string label;        //!< at most 63 bytes
    uint64_t chunk_bytes = 0; //!< of a stripe, see target/stripe.hpp; 0: the default
};

//! Bytes. A disk that takes less than it writes at once (512e) reads, changes and writes a whole physical
//! block for a write of less, and the power may go while durable bytes beside it are written again: there,
//! and where nothing stands against it, 4096.
uint32_t DefaultLbaSize(TargetKind kind, uint32_t device_lba, uint32_t physical_block_size);

struct MountOptions {
    std::string engine = "auto";
    BlockIoOptions io;
    uint32_t max_transfer_bytes = 0; //!< 0: the default
    //! Memory between temporary files and the target; none: by what is free (MemorySupply).
    std::optional<uint64_t> spill_buffer_bytes;
    bool polling = false; //!< see DeviceOptions
    DeallocateMode deallocate = DeallocateMode::AUTO;
    std::chrono::milliseconds deallocate_delay{1000}; //!< how long freed space is collected
    uint64_t memory_target_bytes = 1 * GIB; //!< size of a memory target that is created by being used
    Interrupted interrupted;                //!< of the query that waits for the process that writes
    bool waits_for_readers = true; //!< for those who have the volume for a moment (WaitForBeginningReaders)
};
//! How a target is opened for a mount.
DeviceOptions DeviceOptionsOf(const MountOptions &options);

} // namespace rawduck
