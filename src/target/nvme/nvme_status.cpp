#include "target/nvme/nvme_status.hpp"

#include <cstdio>

namespace rawduck {
namespace {

constexpr uint16_t CODE_AND_TYPE = 0x7FF;
constexpr uint16_t DO_NOT_RETRY = 0x4000;

struct StatusName {
    uint16_t code; //!< type << 8 | code
    const char *text;
    const char *advice;
};

constexpr const char *REPORT = "report it as a defect of rawduck";
constexpr const char *REPLACE = "save what can still be read and replace the device (nvme smart-log)";

constexpr StatusName NAMES[] = {
    {0x001, "the device does not know the command", "use an engine on its block device: io_uring or posix"},
    {0x002, "invalid field in the command", "try a smaller max_transfer in nvme_queues, and report it"},
    {0x004, "data transfer error", "look into the kernel log (dmesg)"},
    {0x005, "aborted: the device lost power", "look into the kernel log (dmesg)"},
    {0x006, "internal device error", "look into the kernel log (dmesg) and nvme smart-log"},
    {0x007, "the command was aborted", "it probably timed out: look into the kernel log (dmesg)"},
    {0x008, "aborted: the queue was deleted", "the controller was reset: look into the kernel log (dmesg)"},
    {0x00B, "invalid namespace or format", "was the namespace deleted or formatted?"},
    {0x013, "invalid data pointer offset", REPORT},
    {0x01C, "a sanitize operation failed", "the device must be sanitized again before it can be used"},
    {0x01D, "a sanitize operation is in progress", "wait until it has finished (nvme sanitize-log)"},
    {0x020, "the namespace is write-protected", "lift the protection, or attach READ_ONLY"},
    {0x021, "the command was interrupted", "try again"},
    {0x080, "LBA out of range: the namespace is smaller than it was", "was it deleted or formatted?"},
    {0x081, "capacity exceeded: the namespace is full", "make room in the device's thin-provisioned pool"},
    {0x082, "the namespace is not ready", "try again; look into the kernel log (dmesg)"},
    {0x083, "reservation conflict: another host has reserved the namespace", "release it there"},
    {0x084, "the namespace is being formatted", "wait until that has finished"},
    {0x180, "conflicting attributes", REPORT},
    {0x181, "invalid protection information", "format the namespace without protection information"},
    {0x182, "the range is read-only", "attach READ_ONLY"},
    {0x183, "command size limit exceeded", "try a smaller max_transfer in nvme_queues, and report it"},
    {0x280, "write fault: the medium did not take the data", REPLACE},
    {0x281, "unrecovered read error: media error", REPLACE},
    {0x282, "end-to-end guard check error", "format the namespace without protection information"},
    {0x283, "end-to-end application tag check error", "format the namespace without protection information"},
    {0x284, "end-to-end reference tag check error", "format the namespace without protection information"},
    {0x285, "compare failure", REPORT},
    {0x286, "access denied: the device is locked or lacks a key", "unlock it first"},
    {0x287, "the LBA is deallocated or was never written", "report it, and use a block device engine"},
    {0x300, "path error inside the device", "look into the kernel log (dmesg)"},
    {0x301, "the namespace is not reachable through this path (persistently)", "use another path"},
    {0x302, "the namespace is not reachable through this path", "use another path"},
    {0x303, "the path is in transition", "try again"},
    {0x360, "controller path error", "look into the kernel log (dmesg)"},
    {0x370, "the host could not reach the device", "look into the kernel log (dmesg)"},
    {0x371, "the kernel aborted the command", "it probably timed out: look into the kernel log (dmesg)"},
};

const char *TypeText(unsigned type) {
    switch (type) {
    case 0:
        return "generic error";
    case 1:
        return "error of this command";
    case 2:
        return "media or data integrity error";
    case 3:
        return "path error";
    default:
        return "vendor-specific error";
    }
}

} // namespace

std::string NvmeStatusText(uint16_t status) {
    const unsigned type = (status >> 8) & 7, code = status & 0xFF;
    char number[64];
    snprintf(number, sizeof number, " (NVMe status type %Xh, code %02Xh)", type, code);
    for (const StatusName &name : NAMES) {
        if (name.code == (status & CODE_AND_TYPE)) {
            return name.text + std::string(number) + "; " + name.advice;
        }
    }
    return TypeText(type) + std::string(number) + "; the NVMe specification explains the code";
}

bool NvmeStatusIsTransient(uint16_t status) {
    if ((status & DO_NOT_RETRY) != 0) {
        return false;
    }
    switch (status & CODE_AND_TYPE) {
    case 0x004: // data transfer error
    case 0x006: // internal error
    case 0x007: // aborted
    case 0x008: // aborted with its queue
    case 0x021: // interrupted
    case 0x082: // not ready
    case 0x303: // path in transition
    case 0x370: // host path error
    case 0x371: // aborted by the host
        return true;
    default:
        return false;
    }
}

} // namespace rawduck
