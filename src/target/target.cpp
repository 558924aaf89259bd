#include "target/target.hpp"

#include "common/error.hpp"
#include "target/nvme/nvme_node.hpp"
#include "target/system/open_error.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace rawduck {
namespace {

struct InProcessPrefix {
    const char *text;
    TargetKind kind;
};
constexpr InProcessPrefix IN_PROCESS_PREFIXES[] = {{"memory:", TargetKind::MEMORY},
                                                   {"simulated:", TargetKind::SIMULATED}};

constexpr const char *VFIO_PREFIX = "vfio:";
//! Of a PCI address, "0000:01:00.0": digits of the domain. Above ffff are those of controllers that have a bus of their
//! own (VMD), "10000:e1:00.0".
constexpr size_t DOMAIN_DIGITS_MIN = 4, DOMAIN_DIGITS_MAX = 8;
constexpr uint64_t NAMESPACE_MAX = UINT32_MAX - 1;

//! Null for a target of the operating system.
const InProcessPrefix *FindInProcessPrefix(const std::string &name) {
    for (const InProcessPrefix &prefix : IN_PROCESS_PREFIXES) {
        if (name.rfind(prefix.text, 0) == 0) {
            return &prefix;
        }
    }
    return nullptr;
}

TargetKind KindOf(const std::string &name, const std::string &path, const struct stat &status) {
    const std::string base = BaseName(path);
    if (S_ISREG(status.st_mode)) {
        return TargetKind::REGULAR_FILE;
    }
    if (S_ISBLK(status.st_mode)) {
        return TargetKind::BLOCK_DEVICE;
    }
    if (S_ISCHR(status.st_mode) && IsNvmeGenericName(base)) {
        return TargetKind::NVME_CHARACTER_DEVICE;
    }
    if (S_ISCHR(status.st_mode) && IsNvmeControllerName(base)) {
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
                name + ": this is " + what +
                    "; a target is a regular file, a block device, an NVMe namespace (/dev/ngXnY) or "
                    "memory:<name>");
}

Target ResolveInProcess(const std::string &name, const InProcessPrefix &prefix) {
    Target target;
    target.kind = prefix.kind;
    target.name = name;
    target.path = name.substr(strlen(prefix.text));
    target.identity = target.node_identity = name;
    if (target.path.empty()) {
        throw Error(ErrorCode::INVALID,
                    name + ": the target needs a name, such as " + prefix.text + "scratch");
    }
    return target;
}

//! As the kernel writes it, so that one function has one name.
bool IsPciAddress(const std::string &text) {
    const std::string rest = ":xx:xx.x";
    const size_t digits = text.find(':');
    if (digits == std::string::npos || digits < DOMAIN_DIGITS_MIN || digits > DOMAIN_DIGITS_MAX ||
        (digits > DOMAIN_DIGITS_MIN && text[0] == '0')) {
        return false;
    }
    const std::string form = std::string(digits, 'x') + rest;
    bool matches = text.size() == form.size();
    for (size_t i = 0; matches && i < form.size(); i++) {
        const bool digit = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
        matches = form[i] == 'x' ? digit : text[i] == form[i];
    }
    return matches;
}

//! 0 when it is none.
uint32_t NamespaceNumber(const std::string &text) {
    const bool digits = !text.empty() && text.size() <= 10 && text[0] != '0' &&
                        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    const uint64_t number = digits ? std::strtoull(text.c_str(), nullptr, 10) : 0;
    return number <= NAMESPACE_MAX ? static_cast<uint32_t>(number) : 0;
}

Target ResolveVfio(const std::string &name) {
    const std::string rest = name.substr(strlen(VFIO_PREFIX));
    Target target;
    target.kind = TargetKind::VFIO_FUNCTION;
    target.name = target.identity = target.node_identity = name;
    const size_t end = rest.find('n');
    target.path = rest.substr(0, end);
    target.namespace_id = end == std::string::npos ? 0 : NamespaceNumber(rest.substr(end + 1));
    if (!IsPciAddress(target.path) || target.namespace_id == 0) {
        throw Error(ErrorCode::INVALID,
                    name + ": this is not a namespace of a PCI function; write it as in vfio:0000:01:00.0n1 "
                           "(`rawduck vfio list` prints those of this machine)");
    }
    return target;
}

//! The block device is where locks, mounts and contents are looked at, whichever node carries the commands.
void FindBlockDevice(Target &target, dev_t generic) {
    target.block_path = NvmeBlockPath(generic);
    struct stat status;
    if (target.block_path.empty() || stat(target.block_path.c_str(), &status) != 0 ||
        !S_ISBLK(status.st_mode)) {
        throw Error(
            ErrorCode::UNSUPPORTED,
            target.name + ": its block device " + (target.block_path.empty() ? "" : target.block_path + " ") +
                "is not there, without which nobody can tell what the namespace is used for; the kernel "
                "hides it for a format or command set that it does not support, and a container must be "
                "given both devices");
    }
    target.identity = IdentityOf(status);
}

} // namespace

std::string IdentityOf(const struct stat &status) {
    if (S_ISBLK(status.st_mode)) {
        return "block:" + DeviceNumberText(status.st_rdev);
    }
    if (S_ISCHR(status.st_mode)) {
        return "character:" + DeviceNumberText(status.st_rdev);
    }
    return "file:" + std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

bool IsInProcess(const std::string &target_name) {
    return FindInProcessPrefix(target_name) != nullptr;
}

bool IsInProcess(TargetKind kind) {
    return kind == TargetKind::MEMORY || kind == TargetKind::SIMULATED;
}

bool HasNoPath(const std::string &target_name) {
    return IsInProcess(target_name) || target_name.rfind(VFIO_PREFIX, 0) == 0;
}

bool HasNode(TargetKind kind) {
    return !IsInProcess(kind) && kind != TargetKind::VFIO_FUNCTION;
}

Target ResolveTarget(const std::string &name) {
    if (name.find('\0') != std::string::npos) {
        throw Error(ErrorCode::INVALID, "the name of a target must not contain a NUL byte");
    }
    if (const InProcessPrefix *prefix = FindInProcessPrefix(name)) {
        return ResolveInProcess(name, *prefix);
    }
    if (HasNoPath(name)) {
        return ResolveVfio(name);
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
    target.identity = target.node_identity = IdentityOf(status);
    if (target.kind == TargetKind::NVME_CHARACTER_DEVICE) {
        FindBlockDevice(target, status.st_rdev);
    }
    return target;
}

Target BlockDeviceOf(const Target &target) {
    if (target.kind != TargetKind::NVME_CHARACTER_DEVICE) {
        return target;
    }
    Target block = target;
    block.kind = TargetKind::BLOCK_DEVICE;
    block.path = target.block_path;
    block.node_identity = target.identity;
    return block;
}

} // namespace rawduck
