//! What an emulator of programs leaves out, such as QEMU's of user programs. Each is tried, not assumed.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rawduck {

//! Whether madvise() says that it has brought memory in, and has not.
inline bool AdviceIsIgnored() {
    constexpr int POPULATE_WRITE = 23; // MADV_POPULATE_WRITE
    const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    unsigned char resident = 0;
    const bool ignored = madvise(page, bytes, POPULATE_WRITE) == 0 && mincore(page, bytes, &resident) == 0 &&
                         (resident & 1) == 0;
    munmap(page, bytes);
    return ignored;
}

//! Whether a child that is made while other threads open and close files may wait for ever, for a lock of the emulator:
//! QEMU's before version 10. Those that Debian has of them ignore advice, too, which can be tried.
inline bool ForksWithItsLocks() {
    return AdviceIsIgnored();
}

//! Whether the limit of a process's addresses is only said to be set. In a child: it is not taken back.
inline bool AddressLimitIsIgnored() {
    const pid_t child = fork();
    if (child == 0) {
        const rlimit wanted = {RLIM_INFINITY / 2, RLIM_INFINITY / 2};
        rlimit set = {};
        const bool ignored = setrlimit(RLIMIT_AS, &wanted) == 0 && getrlimit(RLIMIT_AS, &set) == 0 &&
                             set.rlim_cur != wanted.rlim_cur;
        _exit(ignored ? 1 : 0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

//! Whether this program can be started by itself, as death tests of the style "threadsafe" do.
inline bool CanStartItself() {
    const std::string program = ::testing::internal::GetArgvs()[0];
    const pid_t child = fork();
    if (child == 0) {
        close(STDOUT_FILENO);
        execl(program.c_str(), program.c_str(), "--gtest_list_tests", "--gtest_filter=-*", nullptr);
        _exit(127);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) != 127;
}

} // namespace rawduck
