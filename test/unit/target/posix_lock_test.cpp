//! The locks that stock DuckDB has in this process, in
//! surroundings where the system shows more or less of them.
#include "support/emulation.hpp"
#include "support/out_of_memory.hpp"
#include "support/test_support.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/system/posix_lock.hpp"

#include <atomic>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <tuple>
#include <unistd.h>

namespace rawduck {
namespace {

bool Lock(int fd, int command, short type) {
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return fcntl(fd, command, &lock) == 0;
}

bool Refuses(const std::string &path) {
    try {
        CheckNoPosixLock(path);
    } catch (const Error &error) {
        return error.Code() == ErrorCode::LOCKED && std::string(error.what()).find(path) == 0;
    }
    return false;
}

bool AnotherProcessMayWrite(const std::string &path) {
    return InChild([&] { return Lock(open(path.c_str(), O_RDWR | O_CLOEXEC), F_SETLK, F_WRLCK); });
}

//! MANY_DESCRIPTORS: everything, to a process with so many that the list of locks is asked before they are.
enum class Shown { EVERYTHING, MANY_DESCRIPTORS, NO_LOCKS, NO_PROC };

//! In a mount namespace of this process's own.
bool Hide(Shown shown) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return false;
    }
    for (int i = 0; shown == Shown::MANY_DESCRIPTORS && i < 300; i++) {
        if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
            return false;
        }
    }
    return shown == Shown::EVERYTHING || shown == Shown::MANY_DESCRIPTORS ||
           (shown == Shown::NO_LOCKS ? mount("/dev/null", "/proc/locks", nullptr, MS_BIND, nullptr)
                                     : mount("none", "/proc", "tmpfs", 0, nullptr)) == 0;
}

//! How much is shown, and whether a lock of another open file description, which the kernel tells first,
//! stands beside stock DuckDB's.
class PosixLockTest : public ::testing::TestWithParam<std::tuple<Shown, bool>> {
  protected:
    void SetUp() override {
        if (!InChild([] { return Hide(Shown::NO_PROC); })) {
            GTEST_SKIP() << "mounting needs root";
        }
    }
    TemporaryFile file_{4096};
};

TEST_P(PosixLockTest, IsNotLostWithAnotherDescriptor) {
    const auto [shown, another] = GetParam();
    EXPECT_TRUE(InChild([&, shown = shown, another = another] {
        const std::string &path = file_.Path();
        const int ours = open(path.c_str(), O_RDWR | O_CLOEXEC),
                  beside = open(path.c_str(), O_RDWR | O_CLOEXEC);
        const int stock = open(path.c_str(), O_RDWR | O_CLOEXEC);
        const bool locked = (!another || Lock(beside, F_OFD_SETLK, F_RDLCK)) &&
                            Lock(stock, F_SETLK, another ? F_RDLCK : F_WRLCK) && Hide(shown);
        CloseKeepingPosixLocks(ours);
        // Without /proc, only what the kernel tells is known, which is the other lock.
        const bool refuses = Refuses(path) || (another && shown == Shown::NO_PROC);
        Lock(beside, F_OFD_SETLK, F_UNLCK);
        const bool still_locked = !AnotherProcessMayWrite(path);
        Lock(stock, F_SETLK, F_UNLCK);
        CloseKeepingPosixLocks(beside);
        const bool closed = fcntl(ours, F_GETFD) == -1 && fcntl(beside, F_GETFD) == -1;
        return locked && refuses && still_locked && closed && !Refuses(path) && AnotherProcessMayWrite(path);
    }));
}

TEST_P(PosixLockTest, OfAnotherProcessIsNotOurs) {
    const auto [shown, another] = GetParam();
    EXPECT_TRUE(InChild([&, shown = shown, another = another] {
        const std::string &path = file_.Path();
        const int ours = open(path.c_str(), O_RDWR | O_CLOEXEC),
                  beside = open(path.c_str(), O_RDWR | O_CLOEXEC);
        ChildProcess stock([&] { return Lock(open(path.c_str(), O_RDWR | O_CLOEXEC), F_SETLK, F_RDLCK); });
        const bool prepared = (!another || Lock(beside, F_OFD_SETLK, F_RDLCK)) && Hide(shown);
        const bool refuses = Refuses(path);
        CloseKeepingPosixLocks(ours);
        const bool closed = fcntl(ours, F_GETFD) == -1 || shown == Shown::NO_PROC;
        return prepared && closed && !refuses;
    }));
}

// As that of a volume that is open for writing: where stock DuckDB could have none, nobody has to be asked.
TEST_P(PosixLockTest, NoneIsBesideALockForWriting) {
    const auto [shown, another] = GetParam();
    EXPECT_TRUE(InChild([&, shown = shown, another = another] {
        const std::string &path = file_.Path();
        const int ours = open(path.c_str(), O_RDWR | O_CLOEXEC),
                  beside = open(path.c_str(), O_RDWR | O_CLOEXEC);
        const int stock = open(path.c_str(), O_RDWR | O_CLOEXEC);
        const bool prepared = Lock(beside, F_OFD_SETLK, F_WRLCK) &&
                              !Lock(stock, F_SETLK, another ? F_RDLCK : F_WRLCK) && Hide(shown);
        CloseKeepingPosixLocks(ours);
        return prepared && fcntl(ours, F_GETFD) == -1;
    }));
}

INSTANTIATE_TEST_SUITE_P(Surroundings, PosixLockTest,
                         ::testing::Combine(::testing::Values(Shown::EVERYTHING, Shown::MANY_DESCRIPTORS,
                                                              Shown::NO_LOCKS, Shown::NO_PROC),
                                            ::testing::Bool()));

TEST(PosixLock, OfAFileWithTheSameInodeNumberElsewhereIsAnother) {
    if (!InChild([] { return Hide(Shown::NO_PROC); })) {
        GTEST_SKIP() << "mounting needs root";
    }
    char folder[] = "/tmp/rawduck_inodes_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    EXPECT_TRUE(InChild([&] {
        struct stat status[2];
        bool good = Hide(Shown::EVERYTHING);
        std::string paths[2];
        int fds[2];
        for (int i = 0; i < 2; i++) {
            const std::string place = std::string(folder) + "/" + std::to_string(i);
            good = good && mkdir(place.c_str(), 0700) == 0 &&
                   mount("none", place.c_str(), "tmpfs", 0, nullptr) == 0;
            paths[i] = place + "/file";
            fds[i] = open(paths[i].c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            good = good && fstat(fds[i], &status[i]) == 0;
        }
        return good && status[0].st_ino == status[1].st_ino && Lock(fds[0], F_SETLK, F_WRLCK) &&
               Refuses(paths[0]) && !Refuses(paths[1]);
    }));
    for (const char *place : {"/0", "/1", ""}) {
        rmdir((std::string(folder) + place).c_str());
    }
}

} // namespace
TEST(PosixLock, ADescriptorIsClosedWithoutMemory) {
    const TemporaryFile file(4096);
    FileDescriptor fd(open(file.Path().c_str(), O_RDONLY | O_CLOEXEC),
                      FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
    ASSERT_TRUE(fd.IsOpen());
    const OutOfMemoryAfter limit(0);
    const FileDescriptor closed(std::move(fd));
}

// Stock DuckDB locks a file while another thread closes it.
TEST(PosixLock, IsNotLostAmidAClose) {
    const TemporaryFile file(4096);
    EXPECT_TRUE(InChild([&] {
        std::atomic<bool> stop{false};
        std::thread closing([&] {
            while (!stop) {
                CloseKeepingPosixLocks(open(file.Path().c_str(), O_RDONLY | O_CLOEXEC));
            }
        });
        const int stock = open(file.Path().c_str(), O_RDWR | O_CLOEXEC),
                  beside = open(file.Path().c_str(), O_RDWR | O_CLOEXEC);
        int locked = 0, lost = 0;
        for (int i = 0; i < 20000; i++) {
            if (!Lock(stock, F_SETLK, F_WRLCK)) {
                continue; // our lock is in the way for a moment
            }
            locked++;
            std::this_thread::yield();
            struct flock lock = {};
            lock.l_type = F_WRLCK;
            lock.l_whence = SEEK_SET;
            lost += fcntl(beside, F_OFD_GETLK, &lock) == 0 && lock.l_pid == getpid() ? 0 : 1;
            Lock(stock, F_SETLK, F_UNLCK);
        }
        stop = true;
        closing.join();
        return locked > 0 && lost == 0;
    }));
}

// A fork amid a close of another thread: the child must not wait for a mutex that nobody gives back.
TEST(PosixLock, AChildOfAForkMayClose) {
    if (ForksWithItsLocks()) {
        GTEST_SKIP() << "a child waits for a lock of the emulator";
    }
    const TemporaryFile file(4096);
    std::atomic<bool> stop{false};
    std::thread closing([&] {
        while (!stop) {
            CloseKeepingPosixLocks(open(file.Path().c_str(), O_RDONLY | O_CLOEXEC));
        }
    });
    int hung = 0;
    for (int i = 0; i < 100; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            CloseKeepingPosixLocks(open(file.Path().c_str(), O_RDONLY | O_CLOEXEC));
            _exit(0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        hung += WIFSIGNALED(status) ? 1 : 0;
        if (hung > 0) {
            break;
        }
    }
    stop = true;
    closing.join();
    EXPECT_EQ(hung, 0);
}

} // namespace rawduck
