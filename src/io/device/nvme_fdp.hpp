//! Flexible data placement as the device tells it: reclaim unit handles and statistics. Offsets are those of
//! the NVM Express Base Specification 2.1 ("Reclaim Unit Handle Status", "FDP Statistics log page") and of
//! the NVM Command Set Specification ("I/O Management Receive").
#pragma once

#include "common/units.hpp"
#include "target/nvme/nvme_identify.hpp"
#include "target/target.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

//! One placement identifier that writes to a namespace may carry.
struct PlacementHandle {
    PlacementId placement = PlacementId::NONE;
    uint16_t reclaim_unit_handle = 0;
    uint64_t remaining_bytes = 0; //!< that the reclaim unit which it references still takes
};

//! Of the endurance group, since the device was made. Values beyond 2^64 are cut off there.
struct FdpStatistics {
    uint64_t host_bytes = 0;   //!< written by hosts
    uint64_t media_bytes = 0;  //!< written to the media, hosts' included
    uint64_t erased_bytes = 0; //!< of the media
};

//! From a data structure of I/O Management Receive. `count` becomes the number of handles that the namespace
//! has, which may be more than `length` bytes hold.
std::vector<PlacementHandle> ParsePlacementHandles(const uint8_t *data, size_t length, uint64_t lba_size,
                                                   uint32_t &count);
FdpStatistics ParseFdpStatistics(const uint8_t *log_page);

//! Asks a namespace on which FDP is enabled. Throws Error PERMISSION or IO.
std::vector<PlacementHandle> AskPlacementHandles(const NvmeRun &run, const NvmeInfo &nvme,
                                                 const std::string &target_name);
//! Needs root. Throws Error PERMISSION or IO.
FdpStatistics AskFdpStatistics(const NvmeRun &run, const NvmeInfo &nvme, const std::string &target_name);

struct FdpState {
    std::vector<PlacementHandle> handles;
    FdpStatistics statistics;
};
//! Throws Error UNSUPPORTED when the target is no NVMe namespace with FDP, PERMISSION, IO.
FdpState InspectFdp(const Target &target);

} // namespace rawduck
