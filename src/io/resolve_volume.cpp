#include "io/resolve_volume.hpp"

#include "common/error.hpp"
#include "io/open_device.hpp"
#include "io/stripe/find_members.hpp"
#include "io/stripe/known_stripes.hpp"
#include "target/open_target.hpp"

#include <cerrno>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace rawduck {
namespace {

bool ReadFully(int fd, uint64_t offset, char *unit, int &error_number) {
    uint64_t done = 0;
    while (done < ALLOCATION_UNIT_BYTES) {
        const ssize_t count =
            pread(fd, unit + done, ALLOCATION_UNIT_BYTES - done, static_cast<off_t>(offset + done));
        if (count <= 0 && !(count < 0 && errno == EINTR)) {
            error_number = count < 0 ? errno : EIO;
            return false;
        }
        done += count < 0 ? 0 : static_cast<uint64_t>(count);
    }
    return true;
}

HeaderCopies ReadThroughNode(int fd) {
    struct stat status;
    uint64_t bytes = 0;
    HeaderCopies copies;
    if (fstat(fd, &status) != 0 || (S_ISBLK(status.st_mode) && ioctl(fd, BLKGETSIZE64, &bytes) != 0)) {
        copies.obstacle = ErrnoText(errno);
        return copies;
    }
    bytes = S_ISBLK(status.st_mode) ? bytes : static_cast<uint64_t>(status.st_size);
    // NVMe passthrough writes past the kernel's cache of a block device.
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    int failed = 0;
    copies =
        ReadHeaders(bytes, [&](uint64_t offset, char *unit) { return ReadFully(fd, offset, unit, failed); });
    if (failed != 0 && !copies.Newest()) {
        copies.obstacle = ErrnoText(failed);
    }
    return copies;
}

HeaderCopies HeadersThroughDevice(const Target &target) {
    if (target.kind != TargetKind::SIMULATED) {
        return {}; // what cannot be striped
    }
    DeviceOptions options;
    options.read_only = true;
    return ReadHeaders(*OpenDevice(target, options));
}

Target Striped(const std::string &name, const std::shared_ptr<const Stripe> &stripe) {
    Target target = stripe->members[0].target;
    target.name = name;
    target.stripe = stripe;
    return target;
}

//! `named` says that it is a member, or nothing, or cannot be read, as whoever opens it to use it will be told.
Target WholeOf(const Target &named, const HeaderCopies &copies) {
    if (copies.unknown_version != 0) {
        throw Error(ErrorCode::UNSUPPORTED, named.name + ": it is a member of a stripe of version " +
                                                std::to_string(copies.unknown_version) +
                                                ", and this rawduck knows version " +
                                                std::to_string(MEMBER_VERSION) + "; use a newer rawduck");
    }
    if (!copies.Newest()) {
        return named;
    }
    Target whole = StripedTarget(named.name, FindMembers(named, *copies.Newest(), HeadersOf));
    RememberStripe(whole.stripe);
    return whole;
}

} // namespace

HeaderCopies HeadersOf(const Target &target) {
    if (!HasNode(target.kind)) {
        return HeadersThroughDevice(target);
    }
    int error_number = 0;
    FileDescriptor opened = TryOpenTarget(BlockDeviceOf(target), O_RDONLY | O_NONBLOCK, error_number);
    // Closing it leaves the locks alone that stock DuckDB may have on it in this process.
    const FileDescriptor node(opened.Release(), FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
    if (!node.IsOpen()) {
        HeaderCopies copies;
        copies.obstacle = ErrnoText(error_number);
        return copies;
    }
    return ReadThroughNode(node.Get());
}

Target StripedTarget(const std::string &name, Stripe stripe) {
    return Striped(name, std::make_shared<const Stripe>(std::move(stripe)));
}

Target ResolveVolume(const std::string &name, Headers headers) {
    Target named = ResolveTarget(name);
    if (headers == Headers::NOW || !HasNode(named.kind)) {
        return WholeOf(named, HeadersOf(named));
    }
    if (const auto stripe = KnownStripe(named)) { // in use in this process
        return Striped(name, stripe);
    }
    named.headers_unread = true;
    return named;
}

bool IsSameVolume(const std::string &left, const std::string &right) {
    return ResolveTarget(left).identity == ResolveTarget(right).identity ||
           ResolveVolume(left, Headers::NOW).identity == ResolveVolume(right, Headers::NOW).identity;
}

} // namespace rawduck
