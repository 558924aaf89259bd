#include "io/engine/vfio/ask_controller.hpp"

#include "common/error.hpp"

namespace rawduck {

TargetInfo AskController(const NvmeRun &run, const Target &target) {
    TargetInfo info;
    info.nvme = IdentifyNvme(run, target.namespace_id, target.name);
    if (info.nvme->capacity_lbas == 0) {
        throw Error(ErrorCode::NOT_FOUND, target.name + ": the controller has no namespace " +
                                              std::to_string(target.namespace_id) + " in use");
    }
    RequireUsable(*info.nvme, target.name);
    info.capacity_bytes = info.nvme->capacity_lbas * info.nvme->lba_size;
    info.lba_size = info.physical_block_size = static_cast<uint32_t>(info.nvme->lba_size);
    info.volatile_write_cache = info.nvme->volatile_write_cache;
    info.native_fua = HonoursForceUnitAccess(info.nvme->model);
    if (info.nvme->deallocate) {
        const DeallocateLimits limits = AskDeallocateLimits(run);
        info.max_deallocate_ranges = limits.ranges;
        info.max_deallocate_bytes = limits.range_lbas * info.nvme->lba_size;
    }
    return info;
}

} // namespace rawduck
