#include "common/text/pattern.hpp"
#include "volume/names/path.hpp"

#include "common/error.hpp"

#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {
namespace {

class PathTest : public testing::Test {
  protected:
    void SetUp() override {
        char directory[] = "/tmp/rawduck_path_XXXXXX";
        ASSERT_NE(mkdtemp(directory), nullptr);
        directory_ = directory;
        volume_ = directory_ + "/store.rawduck";
        std::ofstream(volume_) << "x";
    }
    void TearDown() override {
        unlink(volume_.c_str());
        rmdir(directory_.c_str());
    }

    std::string MessageOf(const std::string &path, ErrorCode expected) {
        try {
            SplitVolumePath(path);
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), expected) << error.what();
            return error.what();
        }
        ADD_FAILURE() << path << " did not throw";
        return "";
    }

    std::string directory_, volume_;
};

bool Equal(const std::string &component, const std::string &pattern) {
    return pattern == "*" || component == pattern;
}

bool Matches(const std::string &name, const std::string &pattern) {
    return MatchesPattern(PathComponents(name), PathComponents(pattern), Equal);
}

TEST_F(PathTest, TargetEndsAtTheFirstComponentThatIsNoDirectory) {
    auto path = SplitVolumePath("nvme://" + volume_ + "/sales.duckdb");
    EXPECT_EQ(path.target, volume_);
    EXPECT_EQ(path.file, "sales.duckdb");
    EXPECT_EQ(path.ToString(), "nvme://" + volume_ + "/sales.duckdb");
}

TEST_F(PathTest, FileMayLieInDirectoriesOfTheVolume) {
    EXPECT_EQ(SplitVolumePath("nvme://" + volume_ + "/a/b/c.parquet").file, "a/b/c.parquet");
}

TEST_F(PathTest, RootOfTheVolumeHasAnEmptyFile) {
    EXPECT_EQ(SplitVolumePath("nvme://" + volume_).file, "");
    EXPECT_EQ(SplitVolumePath("nvme://" + volume_ + "/").file, "");
    EXPECT_EQ(SplitVolumePath("nvme://" + volume_ + "/").ToString(), "nvme://" + volume_);
}

TEST_F(PathTest, RedundantSlashesAndDotsAreDropped) {
    EXPECT_EQ(SplitVolumePath("nvme://" + directory_ + "//store.rawduck/./a//b").file, "a/b");
}

TEST_F(PathTest, DevicesAreTargets) {
    EXPECT_EQ(SplitVolumePath("nvme:///dev/null/x.duckdb").target, "/dev/null");
}

TEST_F(PathTest, MemoryTargets) {
    auto path = SplitVolumePath("nvme://memory:scratch/tmp/x");
    EXPECT_EQ(path.target, "memory:scratch");
    EXPECT_EQ(path.file, "tmp/x");
    EXPECT_EQ(SplitVolumePath("nvme://memory:scratch").file, "");
    path = SplitVolumePath("nvme://vfio:0000:01:00.0n1/tmp/x");
    EXPECT_EQ(path.target, "vfio:0000:01:00.0n1");
    EXPECT_EQ(path.file, "tmp/x");
    EXPECT_NE(MessageOf("nvme://memory:/x", ErrorCode::INVALID).find("needs a name"), std::string::npos);
}

TEST_F(PathTest, MissingTargetSaysWhatWasLookedForAndHowToMakeAVolume) {
    auto message = MessageOf("nvme://" + directory_ + "/missing/x.duckdb", ErrorCode::NOT_FOUND);
    EXPECT_NE(message.find(directory_ + "/missing does not exist"), std::string::npos) << message;
    EXPECT_NE(message.find("rawduck format"), std::string::npos) << message;
    EXPECT_NE(message.find("nvme_format("), std::string::npos) << message;
}

TEST_F(PathTest, WhatIsMeantToBeTheVolumesFileIsSaid) {
    const auto said = [this](const std::string &path) {
        return MessageOf("nvme://" + path, ErrorCode::NOT_FOUND);
    };
    for (const char *below : {"/data/disk.rawduck", "/disk.rawduck", "/data/disk", "/disk"}) {
        const std::string file = directory_ + below;
        EXPECT_NE(said(file + "/x.duckdb").find("`rawduck format " + file + " --size"), std::string::npos);
    }
    const std::string inside = directory_ + "/data/disk.rawduck/folder/x.duckdb";
    EXPECT_NE(said(inside).find("`rawduck format " + directory_ + "/data/disk.rawduck --size"),
              std::string::npos);
    EXPECT_NE(said(directory_ + "/x.duckdb").find("`rawduck format " + directory_ + "/x.duckdb --size"),
              std::string::npos);
    const std::string device = said("/dev/no-such-device/x.duckdb");
    EXPECT_NE(device.find("`rawduck devices`"), std::string::npos) << device;
    EXPECT_EQ(device.find("--size"), std::string::npos) << device;
}

TEST_F(PathTest, DirectoryIsNoTarget) {
    EXPECT_NE(MessageOf("nvme://" + directory_, ErrorCode::NOT_FOUND).find("is a directory"),
              std::string::npos);
    MessageOf("nvme:///", ErrorCode::NOT_FOUND);
}

TEST_F(PathTest, RelativeAndClimbingPathsAreRefused) {
    MessageOf("nvme://store.rawduck/x", ErrorCode::INVALID);
    MessageOf("nvme://", ErrorCode::INVALID);
    MessageOf("/data/x", ErrorCode::INVALID);
    MessageOf("nvme://" + directory_ + "/../etc/passwd/x", ErrorCode::INVALID);
    MessageOf("nvme://" + volume_ + "/../x", ErrorCode::INVALID);
}

TEST(PatternTest, ComponentsMatchOneToOne) {
    EXPECT_TRUE(Matches("a/b", "a/b"));
    EXPECT_TRUE(Matches("a/b", "*/b"));
    EXPECT_FALSE(Matches("a/b", "*"));
    EXPECT_FALSE(Matches("a", "a/*"));
}

TEST(PatternTest, TwoStarsMatchAnyNumberOfComponents) {
    EXPECT_TRUE(Matches("x.parquet", "**/x.parquet"));
    EXPECT_TRUE(Matches("a/b/x.parquet", "**/x.parquet"));
    EXPECT_TRUE(Matches("a/x/b/x", "a/**/x"));
    EXPECT_TRUE(Matches("a/b/c", "**"));
    EXPECT_TRUE(Matches("a/b/c/d", "**/b/**/d"));
    EXPECT_FALSE(Matches("a/b/c", "**/b"));
}

// stat("/dev/null\0/x") would look at /dev/null.
TEST(PathWithNulTest, IsRefused) {
    const std::string tail("\0/x", 3);
    for (const std::string &path :
         {VOLUME_SCHEME + ("/dev/null" + tail), DIRECT_SCHEME + ("/data/x" + tail)}) {
        EXPECT_THROW(IsVolumePath(path) ? (void)SplitVolumePath(path) : (void)StripDirectScheme(path), Error);
    }
    EXPECT_THROW(PathComponents("a" + tail), Error);
}

TEST(DirectPathTest, SchemeIsStripped) {
    EXPECT_EQ(StripDirectScheme("direct:///data/x.duckdb"), "/data/x.duckdb");
    EXPECT_EQ(StripDirectScheme("direct://x.duckdb"), "x.duckdb");
    EXPECT_EQ(StripDirectScheme("direct://~/x.duckdb"), "~/x.duckdb");
    EXPECT_THROW(StripDirectScheme("direct://"), Error);
    EXPECT_THROW(StripDirectScheme("/data/x"), Error);
}

//! A folder with links in it.
class ResolvedPathTest : public testing::Test {
  protected:
    void SetUp() override {
        char directory[] = "/tmp/rawduck_link_XXXXXX";
        ASSERT_NE(mkdtemp(directory), nullptr);
        directory_ = directory;
    }
    void TearDown() override {
        for (auto &link : links_) {
            unlink(link.c_str());
        }
        rmdir(directory_.c_str());
    }

    void Link(const std::string &name, const std::string &leads_to) {
        links_.push_back(directory_ + "/" + name);
        ASSERT_EQ(symlink(leads_to.c_str(), links_.back().c_str()), 0);
    }
    std::string Resolved(const std::string &name) { return ResolvedPath(directory_ + "/" + name); }

    std::string directory_;
    std::vector<std::string> links_;
};

TEST_F(ResolvedPathTest, NormalizesWhatIsNotThere) {
    EXPECT_EQ(ResolvedPath("/"), "/");
    EXPECT_EQ(ResolvedPath("/../.."), "/");
    EXPECT_EQ(Resolved("a//./b/"), directory_ + "/a/b");
    EXPECT_EQ(Resolved("a/../../x"), "/tmp/x");
}

TEST_F(ResolvedPathTest, FollowsLinksToWhatIsNotThere) {
    Link("absolute", "/nowhere/x");
    Link("relative", "../nothing");
    Link("chain", "absolute");
    EXPECT_EQ(Resolved("absolute"), "/nowhere/x");
    EXPECT_EQ(Resolved("absolute/y"), "/nowhere/x/y");
    EXPECT_EQ(Resolved("absolute/../y"), "/nowhere/y");
    EXPECT_EQ(Resolved("relative/y"), "/tmp/nothing/y");
    EXPECT_EQ(Resolved("chain"), "/nowhere/x");
}

TEST_F(ResolvedPathTest, LinksInACircleEnd) {
    Link("a", "b");
    Link("b", "a");
    EXPECT_EQ(Resolved("a").rfind(directory_, 0), 0u);
}

TEST_F(ResolvedPathTest, BelongsToTheCanonicalFormOfAVolumesPath) {
    Link("link", "/nowhere");
    EXPECT_EQ(CanonicalVolumePath("nvme://" + directory_ + "/link/volume/x"), "nvme:///nowhere/volume/x");
    EXPECT_EQ(CanonicalVolumePath("nvme://" + directory_), "nvme://" + directory_);
    EXPECT_EQ(CanonicalVolumePath("nvme://memory:a//b"), "nvme://memory:a/b");
    EXPECT_EQ(CanonicalVolumePath("nvme://vfio:0000:01:00.0n1//b"), "nvme://vfio:0000:01:00.0n1/b");
    EXPECT_THROW(CanonicalVolumePath("nvme:///a/../b"), Error);
}

} // namespace
} // namespace rawduck
