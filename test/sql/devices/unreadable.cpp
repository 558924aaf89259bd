//! 512 bytes of a file, UNREADABLE_AT bytes behind its beginning, that cannot be read: UNREADABLE. For tests that preload it.

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

namespace {

using Pread = ssize_t (*)(int, void *, size_t, off64_t);

bool IsUnreadable(int fd, size_t length, off64_t offset) {
    static const char *const name = getenv("UNREADABLE"), *const at = getenv("UNREADABLE_AT");
    char link[64], path[4096] = {};
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const off64_t bad = atoll(at);
    return offset < bad + 512 && offset + static_cast<off64_t>(length) > bad &&
           readlink(link, path, sizeof(path) - 1) > 0 && strcmp(path, name) == 0;
}

} // namespace

extern "C" ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset) {
    static const auto original = reinterpret_cast<Pread>(dlsym(RTLD_NEXT, "pread64"));
    if (IsUnreadable(fd, length, offset)) {
        errno = EIO;
        return -1;
    }
    return original(fd, bytes, length, offset);
}

extern "C" ssize_t pread(int fd, void *bytes, size_t length, off_t offset) {
    return pread64(fd, bytes, length, offset);
}
