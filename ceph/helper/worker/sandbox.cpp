#include "ceph/helper/worker/sandbox.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace rawduck_ceph {

namespace {

#if defined(__x86_64__)
constexpr uint32_t ARCHITECTURE = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t ARCHITECTURE = AUDIT_ARCH_AARCH64;
#else
#error "the sandbox knows the system calls of x86-64 and 64-bit ARM only"
#endif

//! Above that of the OSD. More than this starves workers on a host that is busy with other things.
constexpr int NICE = 5;
constexpr int OOM_SCORE = 900;
constexpr rlim_t OPEN_FILES_MAX = 160;

//! Memory, clocks, the socket and the files that are open already, and the end.
constexpr uint32_t ALLOWED[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_ftruncate,
    SYS_memfd_create,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getpid,
    SYS_gettid,
    SYS_getrandom,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_ppoll,
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_getrusage,
    SYS_sysinfo,
    SYS_getcpu,
    SYS_rseq,
    SYS_set_robust_list,
    SYS_restart_syscall,
#if defined(__x86_64__)
    SYS_poll,
#endif
};

//! Of fcntl. Others make a file send any signal to any process of the same user (F_SETOWN, F_SETSIG), which
//! the OSD is.
constexpr uint32_t FILE_COMMANDS[] = {F_GETFD, F_SETFD, F_GETFL, F_GET_SEALS, F_ADD_SEALS};

sock_filter Load(size_t offset) {
    return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}

sock_filter Return(uint32_t value) {
    return BPF_STMT(BPF_RET | BPF_K, value);
}

//! An instruction that skips the next one unless the loaded value is `value`.
sock_filter UnlessEqual(uint32_t value) {
    return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
}

std::vector<sock_filter> Program() {
    constexpr uint32_t DENY = SECCOMP_RET_ERRNO | EPERM;
    std::vector<sock_filter> program;
    program.push_back(Load(offsetof(seccomp_data, arch)));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    program.push_back(Return(SECCOMP_RET_KILL_PROCESS));
    // Numbers of the x32 interface are not in the list, and are denied like all others.
    program.push_back(Load(offsetof(seccomp_data, nr)));
    for (const uint32_t call : ALLOWED) {
        program.push_back(UnlessEqual(call));
        program.push_back(Return(SECCOMP_RET_ALLOW));
    }
    // Skipped for other calls. The low half of the second argument: the kernel takes it as 32 bits.
    constexpr auto commands = static_cast<uint8_t>(2 * std::size(FILE_COMMANDS) + 2);
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, commands));
    program.push_back(Load(offsetof(seccomp_data, args) + sizeof(uint64_t)));
    for (const uint32_t command : FILE_COMMANDS) {
        program.push_back(UnlessEqual(command));
        program.push_back(Return(SECCOMP_RET_ALLOW));
    }
    program.push_back(Return(DENY));
    // Memory, but none that can be executed: skipped for other calls. The low half of the third argument.
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0));
    program.push_back(Return(DENY));
    program.push_back(Load(offsetof(seccomp_data, args) + 2 * sizeof(uint64_t)));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1));
    program.push_back(Return(DENY));
    program.push_back(Return(SECCOMP_RET_ALLOW));
    return program;
}

void Limit(__rlimit_resource resource, rlim_t value, const char *name) {
    const rlimit limit{value, value};
    if (setrlimit(resource, &limit) != 0) {
        throw std::runtime_error(std::string("setting the limit ") + name + ": " + std::strerror(errno));
    }
}

} // namespace

void GiveWay() {
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICE);
    std::ofstream("/proc/self/oom_score_adj") << OOM_SCORE;
}

void EnterSandbox(uint64_t memory_bytes, uint64_t file_bytes_max) {
    Limit(RLIMIT_DATA, PrivateMemory().Bytes() + memory_bytes, "RLIMIT_DATA");
    Limit(RLIMIT_FSIZE, file_bytes_max, "RLIMIT_FSIZE");
    Limit(RLIMIT_NOFILE, OPEN_FILES_MAX, "RLIMIT_NOFILE");
    Limit(RLIMIT_CORE, 0, "RLIMIT_CORE");
    Limit(RLIMIT_NPROC, 0, "RLIMIT_NPROC");
    std::vector<sock_filter> instructions = Program();
    const sock_fprog program{static_cast<unsigned short>(instructions.size()), instructions.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
        throw std::runtime_error(std::string("the kernel does not filter system calls (seccomp): ") +
                                 std::strerror(errno));
    }
}

PrivateMemory::PrivateMemory() : statm_(open("/proc/self/statm", O_RDONLY | O_CLOEXEC)) {
    if (Bytes() == 0) {
        throw std::runtime_error("/proc/self/statm cannot be read");
    }
}

uint64_t PrivateMemory::Bytes() const {
    char text[200] = {};
    unsigned long data_pages = 0;
    if (pread(statm_.Get(), text, sizeof(text) - 1, 0) <= 0 ||
        std::sscanf(text, "%*u %*u %*u %*u %*u %lu", &data_pages) != 1) {
        return 0;
    }
    return data_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

} // namespace rawduck_ceph
