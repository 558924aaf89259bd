//! Lets DuckDB's threads take their time to let go of a block that was read ahead and is counted as done: a
//! hook in the place of a destructor in the virtual table of the task. For test_closing.py.

#include <cstdint>
#include <ctime>
#include <sys/mman.h>

namespace {

//! Less than what a file that is closed waits for.
constexpr int64_t SLOWNESS_NS = 2'000'000;

void (*original)(void *);

int64_t CpuNs() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000LL + used.tv_nsec;
}

// Not asleep: who closes a file takes a thread that rests for one that has let go.
void ReleaseSlowly(void *task) {
    const int64_t end = CpuNs() + SLOWNESS_NS;
    while (CpuNs() < end) {
    }
    original(task);
}

} // namespace

extern "C" int Hook(void **slot) {
    const auto page = reinterpret_cast<uintptr_t>(slot) & ~uintptr_t{4095};
    if (mprotect(reinterpret_cast<void *>(page), 4096, PROT_READ | PROT_WRITE) != 0) {
        return -1;
    }
    original = reinterpret_cast<void (*)(void *)>(*slot);
    *slot = reinterpret_cast<void *>(ReleaseSlowly);
    return 0;
}
