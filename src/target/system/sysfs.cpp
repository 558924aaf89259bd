#include "target/system/sysfs.hpp"

#include "common/error.hpp"
#include "common/scope_exit.hpp"
#include "target/system/open_error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace rawduck {

namespace {

void RequireAnswer(const std::string &path, int error_number) {
    if (IsWantOfDescriptors(error_number)) {
        ThrowOpenError(path, "read", error_number);
    }
}

} // namespace

std::string ReadAttribute(const std::string &path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        RequireAnswer(path, errno);
        return "";
    }
    const ScopeExit close_it([fd] { close(fd); });
    std::string value;
    std::array<char, 16384> piece;
    for (ssize_t bytes; (bytes = read(fd, piece.data(), piece.size())) > 0;) {
        value.append(piece.data(), static_cast<size_t>(bytes));
    }
    // Serial numbers of some devices are padded with NUL bytes.
    value.erase(std::remove(value.begin(), value.end(), '\0'), value.end());
    const char *space = " \t\n\r";
    size_t first = value.find_first_not_of(space);
    if (first == std::string::npos) {
        return "";
    }
    return value.substr(first, value.find_last_not_of(space) - first + 1);
}

bool ReadNumber(const std::string &path, uint64_t &value) {
    std::string text = ReadAttribute(path);
    if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != std::string::npos) {
        return false;
    }
    value = std::stoull(text);
    return true;
}

std::vector<std::string> ListDirectory(const std::string &path) {
    std::vector<std::string> names;
    std::unique_ptr<DIR, int (*)(DIR *)> directory(opendir(path.c_str()), closedir);
    if (!directory) {
        RequireAnswer(path, errno);
    }
    while (directory) {
        errno = 0;
        const dirent *entry = readdir(directory.get());
        if (!entry && errno != 0) {
            RequireAnswer(path, errno);
        }
        if (!entry) {
            break;
        }
        std::string name = entry->d_name;
        if (name != "." && name != "..") {
            names.push_back(std::move(name));
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::string DeviceNumberText(dev_t number) {
    return std::to_string(major(number)) + ":" + std::to_string(minor(number));
}

dev_t DeviceNumber(const std::string &text) {
    unsigned int major_number = 0, minor_number = 0;
    return sscanf(text.c_str(), "%u:%u", &major_number, &minor_number) == 2
               ? makedev(major_number, minor_number)
               : 0;
}

std::string SysfsDirectory(dev_t number) {
    std::string link = "/sys/dev/block/" + DeviceNumberText(number);
    std::unique_ptr<char, void (*)(void *)> path(realpath(link.c_str(), nullptr), std::free);
    return path ? path.get() : "";
}

bool IsPartition(const std::string &sysfs_directory) {
    return access((sysfs_directory + "/partition").c_str(), F_OK) == 0;
}

std::string DiskDirectory(const std::string &sysfs_directory) {
    return IsPartition(sysfs_directory) ? sysfs_directory.substr(0, sysfs_directory.rfind('/'))
                                        : sysfs_directory;
}

std::string BaseName(const std::string &path) {
    return path.substr(path.rfind('/') + 1);
}

} // namespace rawduck
