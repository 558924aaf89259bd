#include "target/nvme/nvme_node.hpp"

#include "target/system/sysfs.hpp"

#include <cstdlib>
#include <memory>

namespace rawduck {
namespace {

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

//! "n1" of "<prefix>0n1", the number of the namespace; empty when the name is of another form.
std::string NamespaceSuffix(const std::string &name, const std::string &prefix) {
    size_t at = 0;
    if (!SkipNumbered(name, at, prefix)) {
        return "";
    }
    const size_t suffix = at;
    return SkipNumbered(name, at, "n") && at == name.size() ? name.substr(suffix) : "";
}

//! The child of the same directory with another prefix and the same namespace number, as a path in /dev.
std::string Sibling(const std::string &directory, const std::string &prefix,
                    const std::string &other_prefix) {
    const std::string suffix = NamespaceSuffix(BaseName(directory), prefix);
    if (suffix.empty()) {
        return "";
    }
    for (const auto &name : ListDirectory(directory.substr(0, directory.rfind('/')))) {
        if (NamespaceSuffix(name, other_prefix) == suffix) {
            return "/dev/" + name;
        }
    }
    return "";
}

} // namespace

bool IsNvmeGenericName(const std::string &name) {
    return !NamespaceSuffix(name, "ng").empty();
}

bool IsNvmeControllerName(const std::string &name) {
    size_t at = 0;
    return SkipNumbered(name, at, "nvme") && at == name.size();
}

std::string NvmeBlockPath(dev_t generic) {
    const std::string link = "/sys/dev/char/" + DeviceNumberText(generic);
    std::unique_ptr<char, void (*)(void *)> path(realpath(link.c_str(), nullptr), std::free);
    return path ? Sibling(path.get(), "ng", "nvme") : "";
}

std::string NvmeGenericPath(dev_t block) {
    return Sibling(SysfsDirectory(block), "nvme", "ng");
}

bool IsNvmeBlockDevice(const std::string &sysfs_directory) {
    return !NamespaceSuffix(BaseName(DiskDirectory(sysfs_directory)), "nvme").empty();
}

} // namespace rawduck
