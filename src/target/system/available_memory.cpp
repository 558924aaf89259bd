#include "target/system/available_memory.hpp"

#include "common/error.hpp"
#include "common/text/text.hpp"
#include "common/units.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <sstream>
#include <unistd.h>

namespace rawduck {

namespace {

//! The number behind `key`, which begins a line or a word. False when it is not there.
bool NumberBehind(const std::string &text, const std::string &key, uint64_t &number) {
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
        if (at == 0 || text[at - 1] == '\n' || text[at - 1] == ' ') {
            number = std::strtoull(text.c_str() + at + key.size(), nullptr, 10);
            return true;
        }
    }
    return false;
}

//! Of the line "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", which is the first.
std::optional<uint64_t> Stalled(const std::string &pressure) {
    uint64_t stalled_us = 0;
    return NumberBehind(pressure, "total=", stalled_us) ? std::optional<uint64_t>(stalled_us) : std::nullopt;
}

bool Lists(const std::string &names, const std::string &name) {
    return ("," + names + ",").find("," + name + ",") != std::string::npos;
}

} // namespace

std::vector<MemoryLevel> AvailableMemory::Read() {
    try {
        return ReadLevels();
    } catch (const Error &) {
        membership_.clear(); // no descriptor is left to ask through
        return {};
    }
}

std::vector<MemoryLevel> AvailableMemory::ReadLevels() {
    std::vector<MemoryLevel> levels;
    MemoryLevel machine;
    if (!ReadMachine(machine)) {
        return levels;
    }
    levels.push_back(machine);
    std::string membership = Contents("/proc/self/cgroup");
    if (membership != membership_) {
        std::string mounts = Contents("/proc/self/mountinfo");
        if (membership.empty() || mounts.empty()) {
            return {};
        }
        membership_ = std::move(membership);
        sees_groups_ = FindGroups(mounts);
    }
    if (!sees_groups_) {
        return {};
    }
    for (Group &group : groups_) {
        MemoryLevel level;
        if (ReadGroup(group, level)) {
            group.has_limit = true;
            if (level.total_bytes < machine.total_bytes) {
                levels.push_back(std::move(level));
            }
        } else if (group.has_limit) {
            membership_.clear(); // the next call finds out whether it is still there
            return {};
        }
    }
    return levels;
}

bool AvailableMemory::ReadMachine(MemoryLevel &machine) const {
    const std::string text = Contents("/proc/meminfo");
    uint64_t total_kib = 0, available_kib = 0, swap_kib = 0, free_kib = 0, inactive_kib = 0;
    if (!NumberBehind(text, "MemTotal:", total_kib) || !NumberBehind(text, "MemAvailable:", available_kib)) {
        return false;
    }
    // The kernel begins to swap when files that nobody has used twice are no longer plentiful in the page cache.
    if (NumberBehind(text, "SwapTotal:", swap_kib) && swap_kib > 0 &&
        NumberBehind(text, "MemFree:", free_kib) && NumberBehind(text, "Inactive(file):", inactive_kib)) {
        available_kib = std::min(available_kib, free_kib + inactive_kib);
    }
    machine.name = "machine";
    machine.total_bytes = total_kib * KIB;
    machine.available_bytes = available_kib * KIB;
    machine.stalled_us = Stalled(Contents("/proc/pressure/memory"));
    return true;
}

// False where the group does not limit memory.
bool AvailableMemory::ReadGroup(const Group &group, MemoryLevel &level) const {
    const bool is_v1 = group.version == Version::V1;
    const auto path = [&group](const char *file) { return group.folder + "/" + file; };
    uint64_t limit = UINT64_MAX, used = 0, inactive = 0;
    for (const char *file : {is_v1 ? "memory.limit_in_bytes" : "memory.max", "memory.high"}) {
        uint64_t bytes = 0;
        if (ReadNumber(path(file), bytes)) { // "max" is no number
            limit = std::min(limit, bytes);
        }
    }
    if (limit == UINT64_MAX || !ReadNumber(path(is_v1 ? "memory.usage_in_bytes" : "memory.current"), used)) {
        return false;
    }
    const std::string detail = ReadAttribute(path("memory.stat"));
    NumberBehind(detail, is_v1 ? "total_inactive_file " : "inactive_file ", inactive);
    used -= std::min(used, inactive);
    level.name = group.folder;
    level.total_bytes = limit;
    level.available_bytes = limit - std::min(limit, used);
    level.stalled_us = is_v1 ? std::nullopt : Stalled(ReadAttribute(path("memory.pressure")));
    return true;
}

// Of the hierarchy that has the controller: where one of version 1 has it, version 2 does not.
std::optional<AvailableMemory::Place> AvailableMemory::OwnGroup() const {
    std::optional<Place> own;
    std::istringstream memberships(membership_);
    for (std::string membership; std::getline(memberships, membership);) {
        const size_t first = membership.find(':'), second = membership.find(':', first + 1);
        if (second == std::string::npos) {
            continue;
        }
        const std::string controllers = membership.substr(first + 1, second - first - 1);
        if (Lists(controllers, "memory")) {
            return Place{Version::V1, membership.substr(second + 1)};
        }
        if (controllers.empty()) {
            own = Place{Version::V2, membership.substr(second + 1)};
        }
    }
    return own;
}

// False where the group is not to be seen, as in a sandbox without a mount of it: it may have any limit.
bool AvailableMemory::FindGroups(const std::string &mountinfo) {
    groups_.clear();
    const std::optional<Place> own = OwnGroup();
    if (!own) {
        return true; // the kernel does not limit the memory of groups
    }
    std::istringstream mounts(mountinfo);
    for (std::string line; std::getline(mounts, line);) {
        const size_t separator = line.find(" - ");
        if (separator == std::string::npos) {
            continue;
        }
        std::string number, parent, device, mount_root, mount_point, type, source, options;
        std::istringstream(line) >> number >> parent >> device >> mount_root >> mount_point;
        std::istringstream(line.substr(separator + 3)) >> type >> source >> options;
        const bool has_it =
            own->version == Version::V2 ? type == "cgroup2" : type == "cgroup" && Lists(options, "memory");
        if (has_it && AddGroups(*own, mount_root, mount_point)) {
            return true;
        }
    }
    return false;
}

// The group and its parents. False where the mount does not show the group: its root is another group, whose parents
// a namespace hides, or another mount covers it.
bool AvailableMemory::AddGroups(const Place &own, const std::string &mount_root,
                                const std::string &mount_point) {
    std::string path = own.path;
    if (mount_root != "/") {
        if (path != mount_root && !StartsWith(path, mount_root + "/")) {
            return false;
        }
        path = path.substr(mount_root.size());
    }
    while (EndsWith(path, "/")) {
        path.pop_back();
    }
    const std::string members = "\n" + Contents(mount_point + path + "/cgroup.procs") + "\n";
    if (StartsWith(path + "/", "/../") ||
        members.find("\n" + std::to_string(getpid()) + "\n") == std::string::npos) {
        return false;
    }
    for (;;) {
        std::string folder = root_;
        folder += mount_point;
        folder += path;
        groups_.push_back({own.version, std::move(folder), false});
        if (path.empty()) {
            return true;
        }
        path.resize(path.rfind('/'));
    }
}

std::string AvailableMemory::Contents(const std::string &path) const {
    return ReadAttribute(root_ + path);
}

} // namespace rawduck
