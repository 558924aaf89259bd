//! How much memory this process may take before somebody else misses it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rawduck {

//! The machine, or a control group that limits the memory of this process.
struct MemoryLevel {
    std::string name;         //!< "machine", or the folder of the group
    uint64_t total_bytes = 0; //!< free or not
    uint64_t available_bytes =
        0; //!< can be taken without swapping: free, or quickly reclaimed from the page cache
    //! Microseconds, since boot, in which some task of the level waited for memory (PSI). None where the kernel
    //! does not say.
    std::optional<uint64_t> stalled_us;
};

//! Finds the control group and its parents (cgroup v1 and v2) anew when the process was moved. Not thread-safe.
class AvailableMemory {
  public:
    //! `root` stands before /proc and /sys: for tests.
    explicit AvailableMemory(std::string root = "") : root_(std::move(root)) {}

    //! The machine and each group with a limit. Empty where the system does not say what is available, or does not
    //! say it of all of them, as where there are no descriptors to ask through, or the group of this process is not
    //! to be seen. Throws std::bad_alloc.
    std::vector<MemoryLevel> Read();

  private:
    enum class Version { V1, V2 };
    struct Place {
        Version version;
        std::string path; //!< as the system says it
    };
    struct Group {
        Version version;
        std::string folder; //!< with root_
        bool has_limit;     //!< as of the last look
    };

    std::vector<MemoryLevel> ReadLevels();
    bool ReadMachine(MemoryLevel &machine) const;
    bool ReadGroup(const Group &group, MemoryLevel &level) const;
    std::optional<Place> OwnGroup() const;
    bool FindGroups(const std::string &mountinfo);
    bool AddGroups(const Place &own, const std::string &mount_root, const std::string &mount_point);
    std::string Contents(const std::string &path) const;

    const std::string root_;
    std::string membership_; //!< /proc/self/cgroup when the groups were found
    bool sees_groups_ = false;
    std::vector<Group> groups_;
};

} // namespace rawduck
