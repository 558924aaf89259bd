#include "target/nvme/nvme_identify.hpp"

#include "common/error.hpp"
#include "common/little_endian.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "target/nvme/nvme_status.hpp"

#include <cerrno>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>

namespace rawduck {
namespace {

constexpr uint8_t ADMIN_IDENTIFY = 0x06, ADMIN_GET_FEATURES = 0x0A;
constexpr uint32_t IDENTIFY_NAMESPACE = 0x00, IDENTIFY_CONTROLLER = 0x01, IDENTIFY_DESCRIPTORS = 0x03,
                   IDENTIFY_CONTROLLER_OF_COMMAND_SET = 0x06;
constexpr uint32_t FEATURE_FDP = 0x1D;
constexpr uint32_t IDENTIFY_BYTES = 4096;
//! Of MDTS: CAP.MPSMIN is not visible from here, and 4 KiB is the least that it can be.
constexpr uint64_t MDTS_UNIT = 4096;

//! ASCII, padded with spaces. It comes from the device and goes to a terminal.
std::string PaddedText(const uint8_t *bytes, size_t length) {
    std::string text(reinterpret_cast<const char *>(bytes), length);
    text.erase(text.find_last_not_of(std::string(" \0", 2)) + 1);
    for (char &c : text) {
        c = c >= 0x20 && c < 0x7F ? c : '?';
    }
    return text;
}

//! 0, a negative errno, or a positive NVMe status.
int Identify(const NvmeRun &run, uint32_t namespace_id, uint32_t what, AlignedBuffer &buffer) {
    buffer.Resize(IDENTIFY_BYTES);
    memset(buffer.Data(), 0, IDENTIFY_BYTES);
    nvme_passthru_cmd64 command = {};
    command.opcode = ADMIN_IDENTIFY;
    command.nsid = namespace_id;
    command.addr = reinterpret_cast<uintptr_t>(buffer.Data());
    command.data_len = IDENTIFY_BYTES;
    command.cdw10 = what;
    return run(NvmeQueueKind::ADMIN, command);
}

void RequireIdentify(const NvmeRun &run, uint32_t namespace_id, uint32_t what, AlignedBuffer &buffer,
                     const std::string &target_name) {
    const int result = Identify(run, namespace_id, what, buffer);
    const std::string tried = target_name + ": cannot ask the device what it is (NVMe Identify): ";
    if (result == -EACCES || result == -EPERM) {
        throw Error(ErrorCode::PERMISSION,
                    tried + ErrnoText(-result) + "; run as root, or on Linux 6.2 or newer (docs/devices.md)");
    }
    if (result != 0) {
        throw Error(ErrorCode::IO, tried + (result < 0 ? ErrnoText(-result)
                                                       : NvmeStatusText(static_cast<uint16_t>(result))));
    }
}

//! The command set of the namespace; 0 (NVM) where the device knows no others, or this user may not ask.
uint8_t AskCommandSet(const NvmeRun &run, uint32_t namespace_id) {
    constexpr uint8_t TYPE_COMMAND_SET = 4;
    constexpr size_t HEADER_BYTES = 4;
    AlignedBuffer buffer;
    if (Identify(run, namespace_id, IDENTIFY_DESCRIPTORS, buffer) != 0) {
        return 0;
    }
    const auto *bytes = reinterpret_cast<const uint8_t *>(buffer.Data());
    for (size_t at = 0; at + HEADER_BYTES < IDENTIFY_BYTES && bytes[at + 1] != 0;) {
        if (bytes[at] == TYPE_COMMAND_SET) {
            return bytes[at + HEADER_BYTES];
        }
        at += HEADER_BYTES + bytes[at + 1];
    }
    return 0;
}

//! False, too, when this user may not ask.
bool AskFdp(const NvmeRun &run, uint16_t endurance_group) {
    nvme_passthru_cmd64 command = {};
    command.opcode = ADMIN_GET_FEATURES;
    command.cdw10 = FEATURE_FDP;
    command.cdw11 = endurance_group;
    return run(NvmeQueueKind::ADMIN, command) == 0 && (command.result & 1) != 0;
}

} // namespace

void ParseIdentify(const uint8_t *controller, const uint8_t *name_space, NvmeInfo &info) {
    const uint8_t mdts = controller[77];
    const auto optional_commands = ReadLittleEndian(controller + 520, 2);
    const auto controller_atomic = ReadLittleEndian(controller + 528, 2),
               namespace_atomic = ReadLittleEndian(name_space + 36, 2);
    const bool own_atomic = (name_space[24] & 2) != 0 && namespace_atomic != 0;
    const uint8_t formats = name_space[25], formatted = name_space[26];
    const unsigned format = (formatted & 0xF) | (formats >= 16 ? (formatted >> 5 & 3) << 4 : 0);
    const uint8_t *lba_format = name_space + 128 + 4 * format;

    info.serial = PaddedText(controller + 4, 20);
    info.model = PaddedText(controller + 24, 40);
    info.firmware = PaddedText(controller + 64, 8);
    info.max_transfer_bytes = mdts == 0 || mdts > 32 ? 0 : MDTS_UNIT << mdts;
    info.deallocate = (optional_commands & 1 << 2) != 0;
    info.write_zeroes = (optional_commands & 1 << 3) != 0;
    info.volatile_write_cache = (controller[525] & 1) != 0;
    info.capacity_lbas = ReadLittleEndian(name_space, 8);
    info.metadata_size = static_cast<uint32_t>(ReadLittleEndian(lba_format, 2));
    info.lba_size = lba_format[2] < 32 ? uint64_t(1) << lba_format[2] : 0;
    info.endurance_group = static_cast<uint16_t>(ReadLittleEndian(name_space + 102, 2));
    info.protection_information = (name_space[29] & 7) != 0;
    info.atomic_write_bytes = ((own_atomic ? namespace_atomic : controller_atomic) + 1) * info.lba_size;
}

NvmeInfo IdentifyNvme(int fd, const std::string &target_name) {
    const int namespace_id = ioctl(fd, NVME_IOCTL_ID);
    if (namespace_id <= 0) {
        throw Error(ErrorCode::IO, target_name + ": it does not tell its NVMe namespace: " +
                                       ErrnoText(namespace_id < 0 ? errno : ENODEV));
    }
    return IdentifyNvme(RunThroughNode(fd), static_cast<uint32_t>(namespace_id), target_name);
}

NvmeInfo IdentifyNvme(const NvmeRun &run, uint32_t namespace_id, const std::string &target_name) {
    NvmeInfo info;
    info.namespace_id = namespace_id;
    AlignedBuffer controller, name_space;
    RequireIdentify(run, 0, IDENTIFY_CONTROLLER, controller, target_name);
    RequireIdentify(run, namespace_id, IDENTIFY_NAMESPACE, name_space, target_name);
    const auto *controller_bytes = reinterpret_cast<const uint8_t *>(controller.Data());
    const auto *namespace_bytes = reinterpret_cast<const uint8_t *>(name_space.Data());
    ParseIdentify(controller_bytes, namespace_bytes, info);
    info.command_set = AskCommandSet(run, namespace_id);
    const bool knows_fdp = (ReadLittleEndian(controller_bytes + 96, 4) & 1 << 19) != 0;
    info.fdp = knows_fdp && AskFdp(run, info.endurance_group);
    return info;
}

DeallocateLimits AskDeallocateLimits(const NvmeRun &run) {
    DeallocateLimits limits;
    AlignedBuffer buffer;
    if (Identify(run, 0, IDENTIFY_CONTROLLER_OF_COMMAND_SET, buffer) != 0) {
        return limits; // a controller of before NVMe 2.0
    }
    const auto *bytes = reinterpret_cast<const uint8_t *>(buffer.Data());
    const auto ranges = static_cast<uint32_t>(bytes[3]);
    const uint64_t range_lbas = ReadLittleEndian(bytes + 4, 4);
    limits.ranges = ranges == 0 ? limits.ranges : ranges;
    limits.range_lbas = range_lbas == 0 ? limits.range_lbas : range_lbas;
    return limits;
}

bool HonoursForceUnitAccess(const std::string &model) {
    return model != "QEMU NVMe Ctrl";
}

void RequireUsable(const NvmeInfo &info, const std::string &target_name) {
    auto refuse = [&](const std::string &why) {
        throw Error(ErrorCode::UNSUPPORTED, target_name + ": " + why);
    };
    if (info.command_set == 2) {
        refuse("the namespace is zoned, and a volume needs one that can be written anywhere");
    }
    if (info.command_set != 0) {
        refuse("the namespace has the command set " + std::to_string(info.command_set) +
               ", and a volume needs the NVM command set (0)");
    }
    if (info.metadata_size != 0 || info.protection_information) {
        refuse("the namespace is formatted with " +
               (info.protection_information
                    ? std::string("protection information")
                    : std::to_string(info.metadata_size) + " bytes of metadata per LBA") +
               ", which a volume cannot use; format it without (nvme format --lbaf, which destroys its "
               "contents)");
    }
    if (info.lba_size != 512 && info.lba_size != 4096) {
        refuse(
            "its LBA size is " + std::to_string(info.lba_size) +
            " bytes; only 512 and 4096 are supported: format it so (nvme format --lbaf, which destroys its "
            "contents)");
    }
}

} // namespace rawduck
