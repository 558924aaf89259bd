#include "target/stripe.hpp"

#include "target/inspect.hpp"
#include "target/system/open_error.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/stat.h>

namespace rawduck {

bool operator==(const MemberName &a, const MemberName &b) {
    return a.path == b.path && a.serial == b.serial && a.inode == b.inode;
}

MemberName NameOf(const Target &target) {
    MemberName name;
    if (!HasNode(target.kind)) {
        name.path = target.name;
        return name;
    }
    name.path = BlockDeviceOf(target).path;
    struct stat status;
    if (stat(name.path.c_str(), &status) != 0) {
        ThrowOpenError(name.path, "stat", errno);
    }
    if (target.kind == TargetKind::REGULAR_FILE) {
        name.inode = status.st_ino;
    } else {
        name.serial = InfoFromSysfs(SysfsDirectory(status.st_rdev)).serial;
    }
    return name;
}

std::string NameText(const MemberName &name) {
    std::string text = name.path + (name.serial.empty() ? "" : " (serial " + name.serial + ")");
    // It comes from the device, whoever wrote it, and goes to a terminal.
    std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    return text;
}

std::vector<Target> PartsOf(const Target &target) {
    if (!target.stripe) {
        return {target};
    }
    std::vector<Target> parts;
    for (const StripeMember &member : target.stripe->members) {
        parts.push_back(member.target);
    }
    return parts;
}

} // namespace rawduck
