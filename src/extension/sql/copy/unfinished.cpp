#include "extension/sql/copy/unfinished.hpp"

#include "common/error.hpp"
#include "common/text/size.hpp"
#include "common/text/text.hpp"
#include "target/lock/target_lock.hpp"
#include "target/system/sysfs.hpp"
#include "volume/names/path.hpp"
#include "volume/volume.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace rawduck {
namespace {

constexpr const char *SUFFIX = ".nvme_copy-";
constexpr size_t DIGITS = 8;
//! A copy makes an ordinary file a moment before it has it locked.
constexpr time_t SURELY_LOCKED_SECONDS = 60;

std::string RandomDigits() {
    std::random_device random;
    char text[DIGITS + 1];
    snprintf(text, sizeof text, "%0*x", static_cast<int>(DIGITS), random());
    return text;
}

//! The longest start of a name behind which the suffix and the digits have room. Never ends within a character.
std::string Shortened(const std::string &name) {
    const size_t most = NAME_BYTES_MAX - std::string(SUFFIX).size() - DIGITS;
    size_t length = std::min(name.size(), most);
    while (length < name.size() && length > 0 && (static_cast<unsigned char>(name[length]) & 0xC0) == 0x80) {
        length--;
    }
    return name.substr(0, length);
}

bool IsUnfinished(const std::string &name) {
    const size_t begin = name.size() - std::min(name.size(), DIGITS);
    return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin), name.end(),
                       [](unsigned char c) { return isxdigit(c); }) &&
           EndsWith(name.substr(0, begin), SUFFIX);
}

void RequireBytes(uint64_t free, uint64_t bytes, const std::string &destination, const std::string &where) {
    if (bytes > free) {
        throw Error(ErrorCode::NO_SPACE, destination + ": the copy needs " + SizeText(bytes) + ", and " +
                                             where + " has " + SizeText(free) +
                                             " free; remove files there, or name another place");
    }
}

//! Folder and name.
std::pair<std::string, std::string> SplitLocal(const std::string &path) {
    const size_t slash = path.rfind('/') + 1;
    return {path.substr(0, slash), path.substr(slash)};
}

void RemoveIfDead(const std::string &path) {
    struct stat status;
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
        time(nullptr) - status.st_mtime < SURELY_LOCKED_SECONDS) {
        return;
    }
    try {
        const TargetLock lock(ResolveTarget(path), TargetLock::Mode::EXCLUSIVE);
        std::remove(path.c_str());
    } catch (const Error &) {
        // Somebody is at work on it.
    }
}

} // namespace

std::string UnfinishedPath(const std::string &destination, bool is_on_volume) {
    std::string folder, name;
    if (is_on_volume) {
        const VolumePath path = SplitVolumePath(destination);
        folder = VolumePath{path.target, ""}.ToString() + "/";
        name = path.file;
    } else {
        std::tie(folder, name) = SplitLocal(destination);
    }
    return folder + Shortened(name) + SUFFIX + RandomDigits();
}

void RemoveLeftovers(duckdb::FileSystem &files, Volume &volume, const std::string &target) {
    using duckdb::FileFlags;
    for (const FileInfo &file : volume.Files()) {
        if (!IsUnfinished(file.name)) {
            continue;
        }
        try {
            const auto locked = files.OpenFile(VolumePath{target, file.name}.ToString(),
                                               FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_WRITE |
                                                   duckdb::FileLockType::WRITE_LOCK);
            volume.Remove(file.name, RemoveMode::OWN);
        } catch (const std::exception &) {
            // Somebody is at work on it, or DuckDB's settings forbid it.
        }
    }
}

void RemoveLeftovers(const std::string &local_destination) {
    const auto [folder, name] = SplitLocal(local_destination);
    const std::string start = Shortened(name) + SUFFIX;
    std::vector<std::string> found;
    for (const std::string &other : ListDirectory(folder)) {
        if (StartsWith(other, start) && other.size() == start.size() + DIGITS && IsUnfinished(other)) {
            found.push_back(folder + other);
        }
    }
    std::for_each(found.begin(), found.end(), RemoveIfDead);
}

void RequireRoom(const Volume &volume, const std::string &destination, uint64_t bytes) {
    RequireBytes(volume.Info().free_bytes, bytes, destination, "the volume");
}

void RequireRoom(const std::string &local_destination, uint64_t bytes) {
    struct statvfs status;
    const std::string folder = SplitLocal(local_destination).first;
    if (statvfs(folder.c_str(), &status) == 0) {
        RequireBytes(uint64_t(status.f_bavail) * status.f_frsize, bytes, local_destination,
                     "the file system of " + folder);
    }
}

} // namespace rawduck
