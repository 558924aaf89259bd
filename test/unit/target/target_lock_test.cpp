//! TargetLock between processes, and against the classic locks of stock DuckDB.
#include "support/test_support.hpp"
#include "target/lock/reader_lock.hpp"
#include "target/lock/target_lock.hpp"

#include <csignal>
#include <fcntl.h>
#include <optional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

namespace rawduck {
namespace {

using Mode = TargetLock::Mode;

//! What DuckDB's own file system does: fcntl F_SETLK on the whole file.
bool ClassicLock(const std::string &path, short type) {
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0; // the descriptor stays open with the process
}

class LockTest : public ::testing::Test {
  protected:
    LockTest() : file_(4096), target_(ResolveTarget(file_.Path())) {}

    Error ExpectLocked(Mode mode) {
        Error error = CatchError([&] { TargetLock lock(target_, mode); });
        EXPECT_EQ(error.Code(), ErrorCode::LOCKED) << error.what();
        EXPECT_EQ(std::string(error.what()).find(file_.Path()), 0u) << error.what();
        return error;
    }

    TemporaryFile file_;
    Target target_;
    std::optional<TargetLock> held_;
};

TEST_F(LockTest, SharedLocksGoTogetherAndExcludeAWriter) {
    TargetLock first(target_, Mode::SHARED), second(target_, Mode::SHARED);
    Error error = ExpectLocked(Mode::EXCLUSIVE);
    EXPECT_NE(std::string(error.what()).find("this process"), std::string::npos) << error.what();
}

TEST_F(LockTest, AWriterInAnotherProcessExcludesEveryoneAndIsNamed) {
    ChildProcess child([&] {
        held_.emplace(target_, Mode::EXCLUSIVE);
        return true;
    });
    for (Mode mode : {Mode::SHARED, Mode::EXCLUSIVE}) {
        std::string text = ExpectLocked(mode).what();
        EXPECT_NE(text.find("process " + std::to_string(child.Pid()) + " "), std::string::npos) << text;
    }
    child.End();
    TargetLock lock(target_, Mode::EXCLUSIVE);
}

TEST_F(LockTest, AReaderInAnotherProcessExcludesAWriter) {
    ChildProcess child([&] {
        held_.emplace(target_, Mode::SHARED);
        return true;
    });
    std::string text = ExpectLocked(Mode::EXCLUSIVE).what();
    EXPECT_NE(text.find("READ_ONLY"), std::string::npos) << text;
    TargetLock lock(target_, Mode::SHARED);
}

TEST_F(LockTest, StockDuckDbKeepsUsOut) {
    ChildProcess child([&] { return ClassicLock(file_.Path(), F_WRLCK); });
    std::string text = ExpectLocked(Mode::SHARED).what();
    EXPECT_NE(text.find("process " + std::to_string(child.Pid()) + " "), std::string::npos) << text;
    ExpectLocked(Mode::EXCLUSIVE);
}

TEST_F(LockTest, WeKeepStockDuckDbOut) {
    {
        TargetLock lock(target_, Mode::EXCLUSIVE);
        EXPECT_TRUE(InChild([&] { return !ClassicLock(file_.Path(), F_RDLCK); }));
        lock.Change(Mode::SHARED);
        EXPECT_TRUE(InChild([&] { return ClassicLock(file_.Path(), F_RDLCK); }));
        EXPECT_TRUE(InChild([&] { return !ClassicLock(file_.Path(), F_WRLCK); }));
    }
    EXPECT_TRUE(InChild([&] { return ClassicLock(file_.Path(), F_WRLCK); }));
}

TEST_F(LockTest, ClosingAnotherDescriptorOfTheFileLosesNothing) {
    TargetLock lock(target_, Mode::EXCLUSIVE);
    close(open(file_.Path().c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(InChild([&] { return !ClassicLock(file_.Path(), F_RDLCK); }));
}

TEST_F(LockTest, ChangesInPlaceAndKeepsTheOldModeOnConflict) {
    TargetLock lock(target_, Mode::SHARED);
    lock.Change(Mode::EXCLUSIVE);
    EXPECT_EQ(lock.Current(), Mode::EXCLUSIVE);
    lock.Change(Mode::SHARED);
    ChildProcess child([&] {
        held_.emplace(target_, Mode::SHARED);
        return true;
    });
    EXPECT_EQ(CatchError([&] { lock.Change(Mode::EXCLUSIVE); }).Code(), ErrorCode::LOCKED);
    EXPECT_EQ(lock.Current(), Mode::SHARED);
    child.End();
    lock.Change(Mode::EXCLUSIVE);
    ExpectLocked(Mode::SHARED);
}

TEST_F(LockTest, AForkedChildNeitherKeepsNorReleasesTheParentsLock) {
    held_.emplace(target_, Mode::EXCLUSIVE);
    EXPECT_TRUE(InChild([&] {
        bool refused = false;
        try {
            held_->Change(Mode::SHARED);
        } catch (const Error &error) {
            refused = error.Code() == ErrorCode::UNSUPPORTED;
        }
        held_.reset();
        return refused;
    }));
    ExpectLocked(Mode::SHARED);
    ChildProcess child([&] { return true; });
    held_.reset();
    TargetLock lock(target_, Mode::EXCLUSIVE); // although the child lives on
}

TEST_F(LockTest, AParentThatDiesLeavesNoLockToItsChildren) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t parent = fork();
    if (parent == 0) {
        held_.emplace(target_, Mode::EXCLUSIVE);
        if (fork() == 0) {
            close(ready[0]);
            char byte = 'r';
            ssize_t count = write(ready[1], &byte, 1);
            sleep(5);
            _exit(count == 1 ? 0 : 1);
        }
        sleep(60);
        _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    ExpectLocked(Mode::SHARED);
    kill(parent, SIGKILL);
    waitpid(parent, nullptr, 0);
    TargetLock lock(target_, Mode::EXCLUSIVE);
    close(ready[0]);
    close(ready[1]);
}

//! There is no byte that nobody has.
TEST_F(LockTest, NoReaderBesideStockDuckDB) {
    EXPECT_TRUE(InChild([&] { // whose lock ends with it
        if (!ClassicLock(file_.Path(), F_WRLCK)) {
            return false;
        }
        const Error error = CatchError([&] { ReaderLock lock(target_); });
        return error.Code() == ErrorCode::LOCKED && std::string(error.what()).find(file_.Path()) == 0;
    }));
}

TEST_F(LockTest, WithoutWritePermissionOnlyASharedLock) {
    ASSERT_EQ(chmod(file_.Path().c_str(), 0444), 0);
    EXPECT_TRUE(InChild([&] {
        if (getuid() == 0 &&
            (setgid(65534) != 0 || setuid(65534) != 0 || access(file_.Path().c_str(), R_OK) != 0)) {
            return true; // the path itself is out of reach for another user
        }
        TargetLock shared(target_, Mode::SHARED);
        try {
            shared.Change(Mode::EXCLUSIVE);
        } catch (const Error &error) {
            return error.Code() == ErrorCode::PERMISSION && shared.Current() == Mode::SHARED;
        }
        return false;
    }));
}

//! A /proc of this process's own that shows nobody but the user's own processes (2), or nothing of them (1).
bool HideProcesses(const char *hidepid) {
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("proc", "/proc", "proc", 0, (std::string("hidepid=") + hidepid).c_str()) == 0;
}

class HiddenHolderTest : public LockTest, public ::testing::WithParamInterface<const char *> {};

TEST_P(HiddenHolderTest, IsNotTakenForOneThatHasEnded) {
    if (!InChild([] { return HideProcesses(GetParam()); })) {
        GTEST_SKIP() << "a /proc of its own with hidepid needs root";
    }
    held_.emplace(target_, Mode::EXCLUSIVE);
    const int fd = open(file_.Path().c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_TRUE(InChild([&] {
        if (!HideProcesses(GetParam()) || setgid(65534) != 0 || setuid(65534) != 0) {
            return false;
        }
        const LockHolder holder = FindLockHolder(fd, false, {});
        return holder.process == 0 && !holder.everyone_seen;
    }));
    close(fd);
}

INSTANTIATE_TEST_SUITE_P(Hidepid, HiddenHolderTest, ::testing::Values("1", "2"));

TEST_F(LockTest, IsNeverAStandardStreamThatTheProgramHasClosed) {
    EXPECT_TRUE(InChild([&] {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        TargetLock lock(target_, Mode::EXCLUSIVE);
        const bool higher = lock.DescriptorOf(target_) > STDERR_FILENO;
        return higher && fcntl(STDOUT_FILENO, F_GETFD) == -1 && fcntl(STDERR_FILENO, F_GETFD) == -1;
    }));
}

TEST(MemoryLock, AlwaysSucceeds) {
    Target target = ResolveTarget("memory:lock");
    TargetLock first(target, Mode::EXCLUSIVE), second(target, Mode::EXCLUSIVE);
    first.Change(Mode::SHARED);
    EXPECT_EQ(first.Current(), Mode::SHARED);
}

} // namespace
} // namespace rawduck
