#include "target/system/available_memory.hpp"

#include "common/units.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! A /proc and a /sys of a machine with 8 GiB, 6 of them available. The process is in no group.
class AvailableMemoryTest : public ::testing::Test {
  protected:
    AvailableMemoryTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "rawduck-memory-XXXXXX").string();
        root_ = mkdtemp(pattern.data());
        Put("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:         1048576 kB\n"
                             "MemAvailable:    6291456 kB\nInactive(file):  2097152 kB\n"
                             "SwapTotal:             0 kB\n");
        Put("/proc/self/cgroup", "0::/\n");
        Put("/proc/self/mountinfo", "40 1 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        Put("/sys/fs/cgroup/cgroup.procs", ME);
    }
    ~AvailableMemoryTest() override { std::filesystem::remove_all(root_); }

    void Put(const std::string &path, const std::string &text) {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        std::ofstream(root_ + path) << text;
    }
    void PutGroupV2(const std::string &folder, const std::string &limit, uint64_t used, uint64_t inactive) {
        Put(folder + "/cgroup.procs", ME);
        Put(folder + "/memory.max", limit + "\n");
        Put(folder + "/memory.current", std::to_string(used) + "\n");
        Put(folder + "/memory.stat",
            "anon 5\nworkingset_inactive_file 7\ninactive_file " + std::to_string(inactive) + "\n");
    }
    MemoryLevel Level(const std::string &folder) {
        for (MemoryLevel &level : AvailableMemory(root_).Read()) {
            if (level.name == root_ + folder || level.name == folder) {
                return level;
            }
        }
        return {};
    }

    const std::string ME = "0\n" + std::to_string(getpid()) + "\n", OTHERS = "0\n1" + ME.substr(2);
    std::string root_;
};

TEST_F(AvailableMemoryTest, TheMachine) {
    Put("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n"
                                 "full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n");
    const MemoryLevel machine = Level("machine");
    EXPECT_EQ(machine.total_bytes, 8 * GIB);
    EXPECT_EQ(machine.available_bytes, 6 * GIB);
    EXPECT_EQ(machine.stalled_us, 1234u);
}

TEST_F(AvailableMemoryTest, WhereThereIsSwapOnlyWhatIsReclaimedBeforeItCounts) {
    Put("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:         1048576 kB\n"
                         "MemAvailable:    6291456 kB\nInactive(file):  2097152 kB\n"
                         "SwapTotal:       1048576 kB\n");
    EXPECT_EQ(Level("machine").available_bytes, 3 * GIB);
    EXPECT_FALSE(Level("machine").stalled_us);
}

TEST_F(AvailableMemoryTest, NothingWhereTheSystemDoesNotSay) {
    Put("/proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1048576 kB\n");
    EXPECT_TRUE(AvailableMemory(root_).Read().empty());
}

TEST_F(AvailableMemoryTest, GroupsOfVersion1AndTheirParents) {
    Put("/proc/self/cgroup", "5:memory:/a/b\n4:cpu,cpuacct:/c\n0::/d\n");
    Put("/proc/self/mountinfo", "30 1 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                                "31 1 0:2 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n");
    const std::string mount = "/sys/fs/cgroup/memory";
    Put(mount + "/memory.limit_in_bytes", "9223372036854771712\n");
    Put(mount + "/memory.usage_in_bytes", "1\n");
    Put(mount + "/a/memory.limit_in_bytes", std::to_string(2 * GIB) + "\n");
    Put(mount + "/a/memory.usage_in_bytes", std::to_string(GIB) + "\n");
    Put(mount + "/a/memory.stat", "inactive_file 1\ntotal_inactive_file " + std::to_string(256 * MIB) + "\n");
    Put(mount + "/a/b/cgroup.procs", ME);
    Put(mount + "/a/b/memory.limit_in_bytes", std::to_string(GIB) + "\n");
    Put(mount + "/a/b/memory.usage_in_bytes", std::to_string(3 * GIB) + "\n");
    EXPECT_EQ(Level(mount + "/a").total_bytes, 2 * GIB);
    EXPECT_EQ(Level(mount + "/a").available_bytes, GIB + 256 * MIB);
    EXPECT_EQ(Level(mount + "/a/b").total_bytes, GIB);
    EXPECT_EQ(Level(mount + "/a/b").available_bytes, 0u);
    EXPECT_EQ(AvailableMemory(root_).Read().size(), 3u) << "the first group has no limit";
}

TEST_F(AvailableMemoryTest, GroupsOfVersion2AndTheirPressure) {
    Put("/proc/self/cgroup", "0::/user/session\n");
    Put("/proc/self/mountinfo", "40 1 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    PutGroupV2("/sys/fs/cgroup/user", "max", GIB, 0);
    PutGroupV2("/sys/fs/cgroup/user/session", std::to_string(2 * GIB), GIB, 512 * MIB);
    Put("/sys/fs/cgroup/user/session/memory.high", std::to_string(GIB) + "\n");
    Put("/sys/fs/cgroup/user/session/memory.pressure", "some avg10=1.00 avg60=0 avg300=0 total=77\n");
    const MemoryLevel session = Level("/sys/fs/cgroup/user/session");
    EXPECT_EQ(session.total_bytes, GIB) << "above it, processes are slowed down";
    EXPECT_EQ(session.available_bytes, 512 * MIB);
    EXPECT_EQ(session.stalled_us, 77u);
    EXPECT_EQ(AvailableMemory(root_).Read().size(), 2u);
}

TEST_F(AvailableMemoryTest, AContainerSeesItsOwnGroupAsTheRoot) {
    const std::string mount = "/sys/fs/cgroup";
    PutGroupV2(mount, std::to_string(GIB), 0, 0);
    for (const char *path : {"/docker/1234", "/docker/1234/", "/"}) {
        Put("/proc/self/cgroup", "0::" + std::string(path) + "\n");
        Put("/proc/self/mountinfo", "40 1 0:3 " + std::string(path[1] == 'd' ? "/docker/1234" : "/") + " " +
                                        mount + " rw - cgroup2 cgroup2 rw\n");
        EXPECT_EQ(Level(mount).available_bytes, GIB) << path;
    }
}

TEST_F(AvailableMemoryTest, NothingWhereTheGroupOfTheProcessIsNotToBeSeen) {
    const std::string v1 = "/sys/fs/cgroup/memory", v2 = "/sys/fs/cgroup";
    const auto levels = [this](const std::string &membership, const std::string &mount) {
        Put("/proc/self/cgroup", membership + "\n");
        Put("/proc/self/mountinfo", "20 1 0:9 / / rw - ext4 /dev/root rw\n" + mount + "\n");
        return AvailableMemory(root_).Read().size();
    };
    const auto mounted = [](const std::string &root, const std::string &point, const std::string &type) {
        return "40 1 0:3 " + root + " " + point + " rw - " + type + " none rw,memory";
    };
    PutGroupV2(v2, "max", 0, 0);
    PutGroupV2(v2 + "/a", "max", 0, 0);
    EXPECT_EQ(levels("0::/a", mounted("/", v2, "cgroup2")), 1u) << "it is to be seen, and has no limit";
    EXPECT_EQ(levels("0::/a", ""), 0u) << "not mounted";
    EXPECT_EQ(levels("", mounted("/", v2, "cgroup2")), 0u) << "nobody says which it is";
    EXPECT_EQ(levels("0::/", ""), 0u) << "that may be the root of a namespace";
    EXPECT_EQ(levels("0::/b", mounted("/", v2, "cgroup2")), 0u) << "covered by another mount";
    EXPECT_EQ(levels("0::/", mounted("/../..", v2, "cgroup2")), 0u)
        << "the mount is older than the namespace";
    EXPECT_EQ(levels("0::/../a", mounted("/", v2, "cgroup2")), 0u) << "outside the namespace";
    EXPECT_EQ(levels("0::/../a", mounted("/..", v2, "cgroup2")), 1u);
    EXPECT_EQ(levels("0::/ab", mounted("/a", v2, "cgroup2")), 0u) << "another group";
    EXPECT_EQ(levels("4:memory:/a\n0::/", mounted("/", v2, "cgroup2")), 0u) << "version 1 has the controller";
    Put(v1 + "/a/cgroup.procs", ME);
    EXPECT_EQ(levels("4:memory:/a\n0::/", mounted("/", v1, "cgroup")), 1u);
    Put(v1 + "/cgroup.procs", OTHERS);
    Put(v1 + "/a/memory.limit_in_bytes", std::to_string(GIB) + "\n");
    Put(v1 + "/a/memory.usage_in_bytes", "0\n");
    EXPECT_EQ(levels("4:memory:/a", mounted("/a", v1, "cgroup") + "\n" + mounted("/", v1, "cgroup")), 2u)
        << "the second mount covers the first one";
    EXPECT_EQ(levels("4:cpu:/a", ""), 1u) << "no group limits memory";
}

TEST_F(AvailableMemoryTest, AProcessThatIsMovedIsNoticed) {
    Put("/proc/self/mountinfo", "40 1 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    PutGroupV2("/sys/fs/cgroup/a", std::to_string(GIB), 0, 0);
    PutGroupV2("/sys/fs/cgroup/b", std::to_string(2 * GIB), 0, 0);
    AvailableMemory memory(root_);
    for (const char *name : {"a", "b"}) {
        Put("/proc/self/cgroup", "0::/" + std::string(name) + "\n");
        const std::vector<MemoryLevel> levels = memory.Read();
        ASSERT_EQ(levels.size(), 2u);
        EXPECT_EQ(levels[1].name, root_ + "/sys/fs/cgroup/" + name);
    }
}

TEST(AvailableMemoryHereTest, ThisMachineSays) {
    const std::vector<MemoryLevel> levels = AvailableMemory().Read();
    ASSERT_FALSE(levels.empty());
    for (const MemoryLevel &level : levels) {
        EXPECT_GT(level.total_bytes, 0u);
        EXPECT_LE(level.available_bytes, level.total_bytes);
    }
}

} // namespace
} // namespace rawduck
