#include "io/device/nvme_device.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "io/device/command_size.hpp"
#include "io/device/nvme_fdp.hpp"
#include "io/device/synchronous_queue.hpp"
#include "target/lock/open_for_io.hpp"
#include "target/nvme/nvme_status.hpp"
#include "target/open_target.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <set>

namespace rawduck {
namespace {

//! Opcodes of the NVM command set.
constexpr uint8_t NVME_WRITE = 0x01, NVME_READ = 0x02, NVME_DATASET_MANAGEMENT = 0x09;
constexpr uint32_t ATTRIBUTE_DEALLOCATE = 1 << 2;
//! Directive type of a write, in bits 20-23 of its command
//! dword 12; what it says is in bits 16-31 of the next.
constexpr uint32_t DIRECTIVE_DATA_PLACEMENT = 2;
constexpr uint32_t FORCE_UNIT_ACCESS = 1 << 30; // of command dword 12
constexpr uint64_t MAX_RANGE_LBAS = UINT32_MAX;

constexpr int ABORTED_BY_HOST = 0x371; // NVMe status "Command Aborted By Host"

//! The kernel reports a command that it cancelled after a timeout or a reset as interrupted. Nothing else
//! interrupts these commands.
int MapCancelled(int status) {
    return status == -EINTR ? ABORTED_BY_HOST : status;
}

std::string StatusText(int status) {
    status = MapCancelled(status);
    return status < 0 ? ErrnoText(-status) + "; look into the kernel log (dmesg)"
                      : NvmeStatusText(static_cast<uint16_t>(status));
}

} // namespace

nvme_passthru_cmd64 MakeNvmeTransfer(const Command &command, uint32_t namespace_id, uint32_t lba_size) {
    const uint64_t first_lba = command.device_offset / lba_size;
    nvme_passthru_cmd64 transfer = {};
    transfer.opcode = command.opcode == Opcode::READ ? NVME_READ : NVME_WRITE;
    transfer.nsid = namespace_id;
    transfer.addr = reinterpret_cast<uintptr_t>(command.data);
    transfer.data_len = command.length;
    transfer.cdw10 = static_cast<uint32_t>(first_lba);
    transfer.cdw11 = static_cast<uint32_t>(first_lba >> 32);
    transfer.cdw12 = command.length / lba_size - 1; // the number of LBAs counts from 0
    if (command.opcode == Opcode::WRITE && command.placement != PlacementId::NONE) {
        transfer.cdw12 |= DIRECTIVE_DATA_PLACEMENT << 20;
        transfer.cdw13 = static_cast<uint32_t>(command.placement) << 16;
    }
    transfer.cdw12 |= command.fua ? FORCE_UNIT_ACCESS : 0;
    return transfer;
}

nvme_passthru_cmd64 MakeDeallocate(const DatasetRange *ranges, size_t count, uint32_t namespace_id,
                                   AlignedBuffer &buffer) {
    static_assert(DATASET_RANGES_MAX * sizeof(DatasetRange) == PAGE_BYTES, "one page");
    RAWDUCK_INVARIANT(count > 0 && count <= DATASET_RANGES_MAX, "Dataset Management has 1 to 256 ranges");
    buffer.Resize(0);
    buffer.Append(reinterpret_cast<const char *>(ranges), count * sizeof(DatasetRange));
    buffer.AppendZeros(PAGE_BYTES - buffer.Size());
    nvme_passthru_cmd64 command = {};
    command.opcode = NVME_DATASET_MANAGEMENT;
    command.nsid = namespace_id;
    command.addr = reinterpret_cast<uintptr_t>(buffer.Data());
    command.data_len = static_cast<uint32_t>(buffer.Size());
    command.cdw10 = static_cast<uint32_t>(count - 1); // the number of ranges counts from 0
    command.cdw11 = ATTRIBUTE_DEALLOCATE;
    return command;
}

void SetNvmeResult(Command &command, int status) {
    status = MapCancelled(status);
    if (status > 0) {
        command.nvme_status = static_cast<uint16_t>(status);
        command.result = NvmeStatusIsTransient(command.nvme_status) ? -EAGAIN : -EIO;
    } else {
        command.result = status < 0 ? int64_t(status) : int64_t(command.length);
    }
}

NvmeDevice::NvmeDevice(const Target &target, const DeviceOptions &options)
    : name_(target.name), node_(target) {
    const TargetInfo info = InspectTarget(target);
    if (!info.nvme) {
        throw Error(ErrorCode::PERMISSION,
                    name_ +
                        ": this user may not ask the device what it is (NVMe Identify), "
                        "which passthrough needs; run as root (docs/devices.md), or use "
                        "engine io_uring or posix on " +
                        BlockDeviceOf(target).path);
    }
    caps_.read_only = options.read_only || info.read_only;
    Open(target, options);
    Describe(info, options);
}

// What the controller and the kernel say, which have to agree.
uint64_t NvmeDevice::CurrentCapacity() const {
    return node_ ? InspectTarget(*node_).capacity_bytes : caps_.capacity_bytes;
}

void NvmeDevice::Describe(const TargetInfo &info, const DeviceOptions &options) {
    caps_.read_only = caps_.read_only || options.read_only || info.read_only;
    namespace_id_ = info.nvme->namespace_id;
    polling_queues_ = info.polling_queues;
    caps_.capacity_bytes = info.capacity_bytes;
    caps_.lba_size = info.lba_size;
    caps_.memory_alignment = info.memory_alignment;
    const auto limit = static_cast<uint32_t>(std::min<uint64_t>(info.max_passthrough_bytes, UINT32_MAX));
    caps_.max_transfer_bytes = std::min(CommandSizeLimit(name_, options, limit, info.lba_size),
                                        static_cast<uint32_t>(AlignDown(limit, info.lba_size)));
    caps_.volatile_write_cache = info.nvme->volatile_write_cache;
    caps_.fua = info.native_fua;
    max_deallocate_bytes_ =
        AlignDown(std::min(info.max_deallocate_bytes, MAX_RANGE_LBAS * info.lba_size), info.lba_size);
    max_deallocate_ranges_ = info.max_deallocate_ranges;
    caps_.deallocate = !caps_.read_only && max_deallocate_bytes_ > 0;
    FindPlacements(*info.nvme);
}

//! Only the first reclaim group is used: the others have the same handles again.
void NvmeDevice::FindPlacements(const NvmeInfo &nvme) {
    if (!nvme.fdp) {
        caps_.placement_obstacle = "flexible data placement is not enabled on this namespace";
        return;
    }
    try {
        std::set<uint16_t> seen;
        const NvmeRun run = [this](NvmeQueueKind, nvme_passthru_cmd64 &command) { return Run(command); };
        for (const PlacementHandle &handle : AskPlacementHandles(run, nvme, name_)) {
            if (handle.placement != PlacementId::NONE && seen.insert(handle.reclaim_unit_handle).second) {
                caps_.placements.push_back(handle.placement);
            }
        }
        caps_.placement_obstacle = caps_.placements.empty() ? "the namespace has no reclaim unit handle" : "";
    } catch (const Error &error) {
        caps_.placement_obstacle = error.what(); // everything else works without
    }
}

void NvmeDevice::Open(const Target &target, const DeviceOptions &options) {
    int error_number = 0;
    fd_ = OpenForIo(target, options.lock, 0, caps_.read_only, error_number);
    if (!fd_.IsOpen()) {
        ThrowOpenError(name_, "open for NVMe passthrough", error_number);
    }
}

int NvmeDevice::Run(nvme_passthru_cmd64 command) const {
    return RunThroughNode(fd_.Get())(NvmeQueueKind::IO, command);
}

std::unique_ptr<Queue> NvmeDevice::CreateSynchronousQueue() {
    return std::make_unique<SynchronousQueue>(1, [this](Command &command) {
        SetNvmeResult(command, Run(MakeNvmeTransfer(command, namespace_id_, caps_.lba_size)));
        return command.result;
    });
}

void NvmeDevice::Flush() {
    nvme_passthru_cmd64 command = {};
    command.opcode = NVME_FLUSH;
    command.nsid = namespace_id_;
    const int status = Run(command);
    if (status != 0) {
        throw Error(ErrorCode::IO,
                    name_ + ": flush failed, so earlier writes may be lost: " + StatusText(status));
    }
}

bool NvmeDevice::Deallocate(uint64_t device_offset, uint64_t length) {
    return DeallocateRanges({{device_offset, length}});
}

bool NvmeDevice::DeallocateRanges(const std::vector<DeviceRange> &ranges) {
    if (!caps_.deallocate) {
        return false;
    }
    std::vector<DatasetRange> list;
    for (DeviceRange range : ranges) {
        while (range.length > 0) {
            const uint64_t part = std::min(range.length, max_deallocate_bytes_);
            list.push_back(
                {0, static_cast<uint32_t>(part / caps_.lba_size), range.device_offset / caps_.lba_size});
            range.device_offset += part;
            range.length -= part;
        }
    }
    for (size_t first = 0; first < list.size(); first += max_deallocate_ranges_) {
        ManageDataset(&list[first], std::min<size_t>(list.size() - first, max_deallocate_ranges_));
    }
    return true;
}

void NvmeDevice::ManageDataset(const DatasetRange *ranges, size_t count) const {
    AlignedBuffer buffer;
    const int status = Run(MakeDeallocate(ranges, count, namespace_id_, buffer));
    if (status != 0) {
        throw Error(ErrorCode::IO, name_ + ": deallocate of " + std::to_string(count) +
                                       " ranges, the first LBA " + std::to_string(ranges->first_lba) +
                                       " to " + std::to_string(ranges->first_lba + ranges->lbas - 1) +
                                       ", failed: " + StatusText(status));
    }
}

} // namespace rawduck
