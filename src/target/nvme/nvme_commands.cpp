#include "target/nvme/nvme_commands.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/ioctl.h>

namespace rawduck {
namespace {

//! The command for administration with a result of 32 bits, which every kernel knows.
int RunAdmin(int fd, nvme_passthru_cmd64 &command) {
    static_assert(offsetof(nvme_passthru_cmd64, rsvd2) == offsetof(nvme_admin_cmd, result),
                  "the two differ in their result alone");
    nvme_admin_cmd admin = {};
    std::memcpy(&admin, &command, offsetof(nvme_admin_cmd, result));
    const int result = ioctl(fd, NVME_IOCTL_ADMIN_CMD, &admin);
    command.result = admin.result;
    return result < 0 ? -errno : result;
}

} // namespace

NvmeRun RunThroughNode(int fd) {
    return [fd](NvmeQueueKind kind, nvme_passthru_cmd64 &command) {
        if (kind == NvmeQueueKind::ADMIN) {
            return RunAdmin(fd, command);
        }
        const int result = ioctl(fd, NVME_IOCTL_IO64_CMD, &command);
        return result < 0 ? -errno : result;
    };
}

} // namespace rawduck
