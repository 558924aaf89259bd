// What a worker of the helper process can do no more: each attempt in a process of its own.
#include "ceph/helper/worker/sandbox.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace rawduck_ceph {

namespace {

constexpr int SUCCEEDED = 0, DENIED = 1, OTHER_ERROR = 2, NO_SANDBOX = 3;

struct Attempt {
    const char *name;
    std::function<bool()> succeeds; //!< sets errno when it does not
};

//! Returns one of the constants above.
int InSandbox(const Attempt &attempt) {
    const pid_t child = fork();
    if (child == 0) {
        try {
            EnterSandbox(64 << 20, 1 << 20);
        } catch (const std::exception &) {
            _exit(NO_SANDBOX);
        }
        errno = 0;
        _exit(attempt.succeeds() ? SUCCEEDED : errno == EPERM ? DENIED : OTHER_ERROR);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << attempt.name;
    return WEXITSTATUS(status);
}

int Descriptor() {
    static const int descriptor = memfd_create("sandbox-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return descriptor;
}

bool Maps(int protection) {
    return mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

} // namespace

TEST(SandboxTest, WhatAWorkerCannotDo) {
    ASSERT_GE(Descriptor(), 0);
    static char *const page =
        static_cast<char *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const std::vector<Attempt> attempts = {
        {"open", [] { return open("/etc/passwd", O_RDONLY) >= 0; }},
        {"create", [] { return open("/tmp/rawduck-sandbox-test", O_WRONLY | O_CREAT, 0600) >= 0; }},
        {"unlink", [] { return unlink("/tmp/rawduck-sandbox-test") == 0; }},
        {"socket", [] { return socket(AF_INET, SOCK_STREAM, 0) >= 0; }},
        {"unix socket", [] { return socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }},
        {"process", [] { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0; }},
        {"program", [] { return execl("/bin/true", "true", nullptr) == 0; }},
        {"signal to another", [] { return kill(getppid(), 0) == 0; }},
        {"signal to a thread", [] { return syscall(SYS_tgkill, getppid(), getppid(), 0) == 0; }},
        {"owner of a file's signals", [] { return fcntl(Descriptor(), F_SETOWN, getppid()) == 0; }},
        {"a file's signal", [] { return fcntl(Descriptor(), F_SETSIG, SIGKILL) == 0; }},
        {"flags of a file", [] { return fcntl(Descriptor(), F_SETFL, O_ASYNC) == 0; }},
        {"tracing", [] { return ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr) == 0; }},
        {"memory of another", [] { return syscall(SYS_process_vm_readv, getppid(), 0, 0, 0, 0, 0) == 0; }},
        {"limits", [] { return prlimit(getppid(), RLIMIT_CPU, nullptr, nullptr) == 0; }},
        {"executable memory", [] { return Maps(PROT_READ | PROT_EXEC); }},
        {"memory made executable", [] { return mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0; }},
        {"io_uring", [] { return syscall(SYS_io_uring_setup, 1, page) >= 0; }},
    };
    for (const Attempt &attempt : attempts) {
        EXPECT_EQ(InSandbox(attempt), DENIED) << attempt.name;
    }
}

TEST(SandboxTest, WhatItNeeds) {
    const std::vector<Attempt> attempts = {
        {"memory", [] { return Maps(PROT_READ | PROT_WRITE); }},
        {"a file in memory", [] { return memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING) >= 0; }},
        {"sealing it", [] { return fcntl(Descriptor(), F_ADD_SEALS, F_SEAL_GROW) == 0; }},
        {"looking at its seals", [] { return fcntl(Descriptor(), F_GET_SEALS) >= 0; }},
    };
    for (const Attempt &attempt : attempts) {
        EXPECT_EQ(InSandbox(attempt), SUCCEEDED) << attempt.name;
    }
    // More memory than it may have, and a longer file.
    EXPECT_EQ(InSandbox({"too much memory",
                         [] {
                             return mmap(nullptr, 128 << 20, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
                         }}),
              OTHER_ERROR);
}

} // namespace rawduck_ceph
