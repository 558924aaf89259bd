//! The properties of an NVMe controller and namespace (Identify, Get Features). Offsets are those of the NVM
//! Express Base Specification 2.0, figures "Identify Controller" and "Identify Namespace".
#pragma once

#include "target/nvme/nvme_commands.hpp"

#include <cstdint>
#include <string>

namespace rawduck {

struct NvmeInfo {
    uint32_t namespace_id = 0;
    uint64_t capacity_lbas = 0;
    uint64_t lba_size = 0;      //!< bytes
    uint32_t metadata_size = 0; //!< bytes per LBA
    bool protection_information = false;
    uint8_t command_set = 0;         //!< 0: NVM, 2: zoned
    uint64_t max_transfer_bytes = 0; //!< MDTS; 0: no limit
    uint64_t atomic_write_bytes = 0; //!< written entirely or not at all, whatever happens to the power
    bool volatile_write_cache = true;
    bool deallocate = false;
    bool write_zeroes = false;
    uint16_t endurance_group = 0;
    bool fdp = false; //!< flexible data placement is enabled where the namespace lies
    std::string model, serial, firmware;
};

//! Asks through an open namespace: /dev/ngXnY or /dev/nvmeXnY. Throws Error PERMISSION, or IO when the device
//! does not answer.
NvmeInfo IdentifyNvme(int fd, const std::string &target_name);
//! The same through any way to the namespace.
NvmeInfo IdentifyNvme(const NvmeRun &run, uint32_t namespace_id, const std::string &target_name);

//! Limits of Dataset Management.
struct DeallocateLimits {
    uint32_t ranges = 256;            //!< of a command
    uint64_t range_lbas = UINT32_MAX; //!< of a range
};
//! As the controller tells them (Identify, NVM command set); the defaults are those of the format.
DeallocateLimits AskDeallocateLimits(const NvmeRun &run);

//! Whether writes with Force Unit Access are durable: QEMU's emulated controller (seen in 10.0) accepts the bit
//! and writes no differently. Its driver blklogwrites shows such writes without FUA, and a host that loses power
//! loses them.
bool HonoursForceUnitAccess(const std::string &model);

//! From the bytes of the two Identify data structures, 4096
//! each. Leaves namespace_id, command_set and fdp as they are.
void ParseIdentify(const uint8_t *controller, const uint8_t *name_space, NvmeInfo &info);

//! Throws Error UNSUPPORTED for a namespace on which a volume cannot lie: zoned or of another command set,
//! with metadata or protection information, with LBAs other than 512 and 4096 bytes.
void RequireUsable(const NvmeInfo &info, const std::string &target_name);

} // namespace rawduck
