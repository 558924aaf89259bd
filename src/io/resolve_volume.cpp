#include "io/resolve_volume.hpp"

#include "common/error.hpp"
#include "io/open_device.hpp"
#include "io/stripe/find_members.hpp"
#include "target/open_target.hpp"

#include <cerrno>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace rawduck {
namespace {

bool ReadFully(int fd, uint64_t offset, char *unit) {
    uint64_t done = 0;
    while (done < ALLOCATION_UNIT_BYTES) {
        const ssize_t count =
            pread(fd, unit + done, ALLOCATION_UNIT_BYTES - done, static_cast<off_t>(offset + done));
        if (count <= 0 && !(count < 0 && errno == EINTR)) {
            return false;
        }
        done += count < 0 ? 0 : static_cast<uint64_t>(count);
    }
    return true;
}

HeaderCopies HeadersThroughNode(const Target &target) {
    int error_number = 0;
    const FileDescriptor fd = TryOpenTarget(BlockDeviceOf(target), O_RDONLY | O_NONBLOCK, error_number);
    struct stat status;
    uint64_t bytes = 0;
    if (!fd.IsOpen() || fstat(fd.Get(), &status) != 0 ||
        (S_ISBLK(status.st_mode) && ioctl(fd.Get(), BLKGETSIZE64, &bytes) != 0)) {
        return {}; // whoever opens it to use it is told why that cannot be
    }
    bytes = S_ISBLK(status.st_mode) ? bytes : static_cast<uint64_t>(status.st_size);
    // NVMe passthrough writes past the kernel's cache of a block device.
    posix_fadvise(fd.Get(), 0, 0, POSIX_FADV_DONTNEED);
    return ReadHeaders(bytes, [&](uint64_t offset, char *unit) { return ReadFully(fd.Get(), offset, unit); });
}

} // namespace

HeaderCopies HeadersOf(const Target &target) {
    if (HasNode(target.kind)) {
        return HeadersThroughNode(target);
    }
    if (target.kind != TargetKind::SIMULATED) {
        return {}; // what cannot be striped
    }
    DeviceOptions options;
    options.read_only = true;
    return ReadHeaders(*OpenDevice(target, options));
}

Target StripedTarget(const std::string &name, Stripe stripe) {
    Target target = stripe.members[0].target;
    target.name = name;
    target.stripe = std::make_shared<const Stripe>(std::move(stripe));
    return target;
}

Target ResolveVolume(const std::string &name) {
    const Target named = ResolveTarget(name);
    const HeaderCopies copies = HeadersOf(named);
    if (copies.unknown_version != 0) {
        throw Error(ErrorCode::UNSUPPORTED, name + ": it is a member of a stripe of version " +
                                                std::to_string(copies.unknown_version) +
                                                ", and this rawduck knows version " +
                                                std::to_string(MEMBER_VERSION) + "; use a newer rawduck");
    }
    if (!copies.Newest()) {
        return named;
    }
    return StripedTarget(name, FindMembers(named, *copies.Newest(), HeadersOf));
}

} // namespace rawduck
