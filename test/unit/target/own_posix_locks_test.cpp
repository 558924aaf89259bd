//! What the kernel's list says of this process's POSIX locks, and when it is not believed.
#include "support/test_support.hpp"
#include "target/system/own_posix_locks.hpp"
#include "target/system/posix_lock.hpp"

#include <csignal>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rawduck {
namespace {

bool LockByte(int fd, off_t byte, short type = F_WRLCK) {
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return fcntl(fd, F_SETLK, &lock) == 0;
}

constexpr int PATIENCE_MS = 10000;

//! Asks again, for a while, as long as nothing is known: other processes of this machine lock and unlock, and
//! the list is a long one for a moment.
Held Asked(const std::string &path) {
    struct stat status;
    Held held = Held::UNKNOWN;
    for (int i = 0; held == Held::UNKNOWN && i < PATIENCE_MS && stat(path.c_str(), &status) == 0; i++) {
        held = AskLockList(path, status);
        std::this_thread::sleep_for(std::chrono::milliseconds(held == Held::UNKNOWN ? 1 : 0));
    }
    return held;
}

//! Of a list that gives no answer. Short: a long one keeps the tests that run beside this one waiting.
bool IsUnknown(const std::string &path) {
    struct stat status;
    bool unknown = stat(path.c_str(), &status) == 0;
    for (int i = 0; i < 20; i++) {
        unknown = unknown && AskLockList(path, status) == Held::UNKNOWN;
    }
    return unknown;
}

bool LockMany(int fd, short type) {
    bool locked = true;
    for (off_t byte = 0; byte < 400; byte += 2) {
        locked = LockByte(fd, byte, type) && locked;
    }
    return locked;
}

//! Each test has a process of its own, whose locks are those that it takes.
class OwnPosixLocksTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!InChild([&] { return Asked(file_.Path()) == Held::NO; })) {
            GTEST_SKIP() << "this system does not list its locks, or too many to be read at once";
        }
    }
    TemporaryFile file_{4096}, other_{4096};
};

TEST_F(OwnPosixLocksTest, ListsTheFileThatIsLockedAndNoOther) {
    EXPECT_TRUE(InChild([&] {
        const int fd = open(file_.Path().c_str(), O_RDWR | O_CLOEXEC);
        const bool before = Asked(file_.Path()) == Held::NO;
        const bool locked = LockByte(fd, 7) && Asked(file_.Path()) == Held::YES;
        // Where the file system's names are not those of stat(2), the list does not say.
        const bool other = Asked(other_.Path()) == Held::NO;
        return before && locked && other && LockByte(fd, 7, F_UNLCK) && Asked(file_.Path()) == Held::NO;
    }));
}

TEST_F(OwnPosixLocksTest, OfAParentAreNotThoseOfItsChild) {
    EXPECT_TRUE(InChild([&] {
        const int fd = open(file_.Path().c_str(), O_RDWR | O_CLOEXEC);
        const bool locked = LockByte(fd, 0) && Asked(file_.Path()) == Held::YES;
        return locked && InChild([&] { return Asked(file_.Path()) == Held::NO; }) &&
               Asked(file_.Path()) == Held::YES;
    }));
}

TEST_F(OwnPosixLocksTest, AreUnknownWhereTheListIsHidden) {
    if (!InChild([] { return unshare(CLONE_NEWNS) == 0; })) {
        GTEST_SKIP() << "mounting needs root";
    }
    EXPECT_TRUE(InChild([&] {
        return Asked(file_.Path()) == Held::NO && unshare(CLONE_NEWNS) == 0 &&
               mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               mount("/dev/null", "/proc/locks", nullptr, MS_BIND, nullptr) == 0 && IsUnknown(file_.Path());
    }));
}

// More than the kernel gives out at once: a lock that moves meanwhile could be missed.
TEST_F(OwnPosixLocksTest, AreUnknownWhereTheListIsLong) {
    EXPECT_TRUE(InChild([&] {
        const int fd = open(file_.Path().c_str(), O_RDWR | O_CLOEXEC),
                  another = open(other_.Path().c_str(), O_RDWR | O_CLOEXEC);
        const bool locked = LockByte(another, 0) && LockMany(fd, F_WRLCK);
        const bool unknown = IsUnknown(file_.Path());
        try {
            CheckNoPosixLock(other_.Path());
        } catch (const Error &error) {
            return locked && unknown && error.Code() == ErrorCode::LOCKED; // the descriptors say so
        }
        return false;
    }));
}

// Others lock and unlock meanwhile: what did not fit the first page may have moved to where it was read already.
TEST_F(OwnPosixLocksTest, AreNotMissedWhileTheListGetsShorter) {
    EXPECT_TRUE(InChild([&] {
        const bool locked = LockByte(open(file_.Path().c_str(), O_RDWR | O_CLOEXEC), 0);
        const pid_t child = fork();
        if (child == 0) {
            const int fd = open(other_.Path().c_str(), O_RDWR | O_CLOEXEC);
            while (getppid() != 1) {
                LockMany(fd, F_WRLCK);
                LockMany(fd, F_UNLCK);
            }
            _exit(0);
        }
        struct stat status;
        bool good = locked && child > 0 && stat(file_.Path().c_str(), &status) == 0;
        for (int i = 0; i < 20000; i++) {
            good = good && AskLockList(file_.Path(), status) != Held::NO;
        }
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        return good;
    }));
}

// A program may close all descriptors, and open its own in their places.
TEST_F(OwnPosixLocksTest, AreKnownWhenAProgramHasClosedTheWitness) {
    EXPECT_TRUE(InChild([&] {
        bool good = Asked(file_.Path()) == Held::NO;
        for (int fd = 3; fd < 1024; fd++) {
            close(fd);
        }
        for (int i = 0; i < 64; i++) {
            good = good && open(file_.Path().c_str(), O_RDWR | O_CLOEXEC) >= 0;
        }
        good = good && Asked(file_.Path()) == Held::NO;
        // Nothing was locked in the witness's place.
        return good && InChild([&] { return LockByte(open(file_.Path().c_str(), O_RDWR | O_CLOEXEC), 0); });
    }));
}

} // namespace
} // namespace rawduck
