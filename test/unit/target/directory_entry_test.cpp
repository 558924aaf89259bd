#include "target/directory_entry.hpp"

#include "common/error.hpp"
#include "support/test_support.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {
namespace {

constexpr uid_t NOBODY = 65534;

//! A directory that everybody may change and nobody else may list, looked at as somebody who is not root.
class DropBoxTest : public testing::Test {
  protected:
    void SetUp() override {
        char directory[] = "/var/tmp/rawduck_box_XXXXXX";
        ASSERT_NE(mkdtemp(directory), nullptr);
        box_ = directory;
        if (geteuid() != 0 || chmod(directory, 0333) != 0 || seteuid(NOBODY) != 0) {
            GTEST_SKIP() << "only root can become another user";
        }
    }
    void TearDown() override {
        EXPECT_EQ(seteuid(getuid()), 0);
        std::system(("rm -rf " + box_).c_str());
    }
    int Make(const char *name, mode_t mode) const {
        return open((box_ + "/" + name).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
    }

    std::string box_;
};

} // namespace

TEST_F(DropBoxTest, ANameIsFlushedThroughTheFileThatWasMade) {
    const EntryFlush name(box_ + "/new");
    const FileDescriptor made(Make("new", 0600));
    ASSERT_TRUE(made.IsOpen());
    EXPECT_NO_THROW(name.Run(made.Get()));
    EXPECT_THROW(name.Run(), Error) << "without a file nothing is flushed";
}

TEST_F(DropBoxTest, AFileThatIsThereIsOpenedBeforeItsNameChanges) {
    close(Make("old", 0600));
    const EntryFlush name(box_ + "/old", box_ + "/old");
    ASSERT_EQ(unlink((box_ + "/old").c_str()), 0);
    EXPECT_NO_THROW(name.Run());
}

TEST_F(DropBoxTest, WhatCannotBeFlushedIsRefused) {
    close(Make("old", 0000));
    const Error error = CatchError([&] { EntryFlush(box_ + "/old", box_ + "/old"); });
    EXPECT_EQ(error.Code(), ErrorCode::PERMISSION) << error.what();
    EXPECT_NE(std::string(error.what()).find("nothing was changed"), std::string::npos) << error.what();
}

TEST(DirectoryEntry, AMissingDirectoryIsLeftToWhoChangesIt) {
    const std::string missing = "/var/tmp/there/is/no/such/directory";
    EXPECT_NO_THROW(EntryFlush{missing});
    EXPECT_NO_THROW(EntryFlush(missing, missing));
}

} // namespace rawduck
