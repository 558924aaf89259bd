#include "device/target.hpp"

#include "common/error.hpp"
#include "device/open_target.hpp"
#include "device/sysfs.hpp"

#include <cerrno>
#include <cstdlib>
#include <memory>

namespace rawduck {
namespace {

const std::string MEMORY_PREFIX = "memory:";

//! Consumes `letters` followed by at least one digit.
bool SkipNumbered(const std::string &text, size_t &at, const std::string &letters) {
    if (text.compare(at, letters.size(), letters) != 0) {
        return false;
    }
    size_t first = at + letters.size();
    size_t end = first;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') {
        end++;
    }
    at = end;
    return end > first;
}

//! "ng0n1": the generic character device of a namespace.
bool IsNvmeGeneric(const std::string &base) {
    size_t at = 0;
    return SkipNumbered(base, at, "ng") && SkipNumbered(base, at, "n") && at == base.size();
}

//! "nvme0": the character device of a controller.
bool IsNvmeController(const std::string &base) {
    size_t at = 0;
    return SkipNumbered(base, at, "nvme") && at == base.size();
}

TargetKind KindOf(const std::string &name, const std::string &path, const struct stat &status) {
    const std::string base = BaseName(path);
    if (S_ISREG(status.st_mode)) {
        return TargetKind::REGULAR_FILE;
    }
    if (S_ISBLK(status.st_mode)) {
        return TargetKind::BLOCK_DEVICE;
    }
    if (S_ISCHR(status.st_mode) && IsNvmeGeneric(base)) {
        return TargetKind::NVME_CHARACTER_DEVICE;
    }
    if (S_ISCHR(status.st_mode) && IsNvmeController(base)) {
        throw Error(ErrorCode::INVALID, name +
                                            ": this is an NVMe controller, not a namespace; use one of its "
                                            "namespaces, such as /dev/" +
                                            base + "n1");
    }
    std::string what = S_ISDIR(status.st_mode)    ? "a directory"
                       : S_ISCHR(status.st_mode)  ? "a character device"
                       : S_ISFIFO(status.st_mode) ? "a FIFO"
                       : S_ISSOCK(status.st_mode) ? "a socket"
                                                  : "of an unknown kind";
    throw Error(ErrorCode::INVALID,
                name + ": this is " + what + "; a target is a regular file, a block device or memory:<name>");
}

Target ResolveMemory(const std::string &name) {
    Target target;
    target.kind = TargetKind::MEMORY;
    target.name = name;
    target.path = name.substr(MEMORY_PREFIX.size());
    target.identity = name;
    if (target.path.empty()) {
        throw Error(ErrorCode::INVALID, name + ": a memory target needs a name, such as memory:scratch");
    }
    return target;
}

} // namespace

Target ResolveTarget(const std::string &name) {
    if (name.find('\0') != std::string::npos) {
        throw Error(ErrorCode::INVALID, "the name of a target must not contain a NUL byte");
    }
    if (name.compare(0, MEMORY_PREFIX.size(), MEMORY_PREFIX) == 0) {
        return ResolveMemory(name);
    }
    if (name.empty() || name[0] != '/') {
        throw Error(
            ErrorCode::INVALID,
            "'" + name +
                "' is not a target; give an absolute path (/dev/nvme0n1, /data/volume) or memory:<name>");
    }
    std::unique_ptr<char, void (*)(void *)> path(realpath(name.c_str(), nullptr), std::free);
    if (!path) {
        ThrowOpenError(name, "find", errno);
    }
    struct stat status;
    if (stat(path.get(), &status) != 0) {
        ThrowOpenError(name, "stat", errno);
    }
    Target target;
    target.kind = KindOf(name, path.get(), status);
    target.name = name;
    target.path = path.get();
    target.identity = IdentityOf(status);
    return target;
}

} // namespace rawduck
