#include "io/engine/vfio/dma/spare_memory.hpp"

#include "common/units.hpp"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! With less, all that may be locked is for the driver itself and for copies.
constexpr uint64_t LOCKABLE_BYTES_MIN = 64 * MIB;
//! Of the machine's own users. In namespaces of other users capabilities do not count for locked memory.
constexpr ino_t INITIAL_USER_NAMESPACE = 0xEFFFFFFD;

//! CAP_IPC_LOCK. Root has it on most systems, and not in most containers.
bool IsWithoutLimit() {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    struct stat users;
    return syscall(SYS_capget, &header, data) == 0 &&
           (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0 &&
           stat("/proc/self/ns/user", &users) == 0 && users.st_ino == INITIAL_USER_NAMESPACE;
}

} // namespace

bool SpareMemory::Take(uint64_t bytes, uint64_t bytes_max) {
    uint64_t taken = taken_.load();
    do {
        if (bytes > bytes_max || taken > bytes_max - bytes) {
            return false;
        }
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    return true;
}

uint64_t SpareBytesMax() {
    rlimit limit{};
    if (IsWithoutLimit() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return UINT64_MAX;
    }
    return limit.rlim_cur < LOCKABLE_BYTES_MIN ? 0 : limit.rlim_cur / 2;
}

} // namespace rawduck
