#include "io/device/nvme_fdp.hpp"

#include "common/error.hpp"
#include "common/little_endian.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "target/inspect.hpp"
#include "target/nvme/nvme_status.hpp"
#include "target/open_target.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>

namespace rawduck {
namespace {

constexpr uint8_t ADMIN_GET_LOG_PAGE = 0x02, IO_MANAGEMENT_RECEIVE = 0x12;
constexpr uint32_t HANDLE_STATUS = 1, LOG_FDP_STATISTICS = 0x22;
constexpr uint32_t STATISTICS_BYTES = 64;
constexpr size_t HEADER_BYTES = 16, DESCRIPTOR_BYTES = 32;
//! Enough for every handle of a namespace with one reclaim group: 127 is the most that the format allows.
constexpr uint32_t USUAL_HANDLES = 127;

uint64_t ReadLittleEndian128(const uint8_t *bytes) {
    return ReadLittleEndian(bytes + 8, 8) != 0 ? UINT64_MAX : ReadLittleEndian(bytes, 8);
}

//! Field NUMD: how many 32-bit words to transfer, counting from 0.
uint32_t WordCount(size_t bytes) {
    return static_cast<uint32_t>(bytes / 4 - 1);
}

void RequireSuccess(int result, const std::string &target_name, const std::string &what) {
    const std::string tried = target_name + ": cannot ask the device for " + what + ": ";
    if (result == -EACCES || result == -EPERM) {
        throw Error(ErrorCode::PERMISSION, tried + ErrnoText(-result) + "; run as root");
    }
    if (result != 0) {
        throw Error(ErrorCode::IO, tried + (result < 0 ? ErrnoText(-result)
                                                       : NvmeStatusText(static_cast<uint16_t>(result))));
    }
}

} // namespace

std::vector<PlacementHandle> ParsePlacementHandles(const uint8_t *data, size_t length, uint64_t lba_size,
                                                   uint32_t &count) {
    std::vector<PlacementHandle> handles;
    count = length < HEADER_BYTES ? 0 : static_cast<uint32_t>(ReadLittleEndian(data + 14, 2));
    for (uint32_t i = 0; i < count && HEADER_BYTES + (i + 1) * DESCRIPTOR_BYTES <= length; i++) {
        const uint8_t *descriptor = data + HEADER_BYTES + i * DESCRIPTOR_BYTES;
        PlacementHandle handle;
        handle.placement = static_cast<PlacementId>(ReadLittleEndian(descriptor, 2));
        handle.reclaim_unit_handle = static_cast<uint16_t>(ReadLittleEndian(descriptor + 2, 2));
        handle.remaining_bytes = ReadLittleEndian(descriptor + 8, 8) * lba_size;
        handles.push_back(handle);
    }
    return handles;
}

FdpStatistics ParseFdpStatistics(const uint8_t *log_page) {
    return {ReadLittleEndian128(log_page), ReadLittleEndian128(log_page + 16),
            ReadLittleEndian128(log_page + 32)};
}

std::vector<PlacementHandle> AskPlacementHandles(const NvmeRun &run, const NvmeInfo &nvme,
                                                 const std::string &target_name) {
    uint32_t asked = USUAL_HANDLES;
    for (;;) {
        AlignedBuffer buffer;
        buffer.AppendZeros(HEADER_BYTES + asked * DESCRIPTOR_BYTES);
        nvme_passthru_cmd64 command = {};
        command.opcode = IO_MANAGEMENT_RECEIVE;
        command.nsid = nvme.namespace_id;
        command.addr = reinterpret_cast<uintptr_t>(buffer.Data());
        command.data_len = static_cast<uint32_t>(buffer.Size());
        command.cdw10 = HANDLE_STATUS;
        command.cdw11 = WordCount(buffer.Size());
        RequireSuccess(run(NvmeQueueKind::IO, command), target_name,
                       "its reclaim unit handles (NVMe I/O Management Receive)");
        uint32_t count = 0;
        auto handles = ParsePlacementHandles(reinterpret_cast<const uint8_t *>(buffer.Data()), buffer.Size(),
                                             nvme.lba_size, count);
        if (count <= asked) {
            return handles;
        }
        asked = count;
    }
}

FdpStatistics AskFdpStatistics(const NvmeRun &run, const NvmeInfo &nvme, const std::string &target_name) {
    uint8_t log_page[STATISTICS_BYTES] = {};
    nvme_passthru_cmd64 command = {};
    command.opcode = ADMIN_GET_LOG_PAGE;
    command.addr = reinterpret_cast<uintptr_t>(log_page);
    command.data_len = STATISTICS_BYTES;
    command.cdw10 = WordCount(STATISTICS_BYTES) << 16 | LOG_FDP_STATISTICS;
    command.cdw11 = uint32_t(nvme.endurance_group) << 16;
    RequireSuccess(run(NvmeQueueKind::ADMIN, command), target_name,
                   "its placement statistics (NVMe Get Log Page)");
    return ParseFdpStatistics(log_page);
}

FdpState InspectFdp(const Target &target) {
    auto refuse = [&](const std::string &why) {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": no flexible data placement (FDP): " + why);
    };
    if (target.kind == TargetKind::MEMORY || target.kind == TargetKind::REGULAR_FILE) {
        refuse("only NVMe namespaces can have it");
    }
    if (target.kind == TargetKind::VFIO_FUNCTION) {
        refuse(
            "its statistics are asked for through the kernel, which does not have the controller now; give "
            "it back to see them (rawduck vfio unbind " +
            target.path + ")");
    }
    const TargetInfo info = InspectTarget(target);
    if (!info.nvme) {
        refuse("it is not an NVMe namespace, or this user may not ask it (run as root)");
    }
    if (!info.nvme->fdp) {
        refuse("the device does not have it, or it is not enabled (nvme set-feature -f 0x1d; `rawduck "
               "devices` shows where it is)");
    }
    const FileDescriptor fd = OpenTarget(target, O_RDONLY | O_NONBLOCK);
    const NvmeRun run = RunThroughNode(fd.Get());
    return {AskPlacementHandles(run, *info.nvme, target.name),
            AskFdpStatistics(run, *info.nvme, target.name)};
}

} // namespace rawduck
