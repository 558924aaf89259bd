//! Stops the process at a lock of an open file description, until somebody has done what he wants to meanwhile: with PAUSE_AT=n
//! before the n-th shared one, or, with PAUSE_AT_ANY, the n-th of either kind, or look whether there is a log; otherwise whenever it has made an exclusive one
//! shared. For tests that preload it.

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace {

int exclusive = -1; //!< the descriptor whose lock is
int asked_for = 0;  //!< how many of those that count

void Pause() {
    const std::string paused = std::string(getenv("PAUSE_FOLDER")) + "/paused";
    fclose(fopen(paused.c_str(), "w"));
    while (access(paused.c_str(), F_OK) == 0) { // who has done it removes it
        usleep(1000);
    }
}

} // namespace

extern "C" int fcntl64(int fd, int command, ...) {
    static const auto original = reinterpret_cast<int (*)(int, int, ...)>(dlsym(RTLD_NEXT, "fcntl64"));
    static const char *const number = getenv("PAUSE_AT"), *const any = getenv("PAUSE_AT_ANY");
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    const short type = command == F_OFD_SETLK ? static_cast<struct flock *>(argument)->l_type : F_UNLCK;
    const bool counts = type == F_RDLCK || (type == F_WRLCK && any);
    if (number && counts && ++asked_for == atoi(number)) {
        Pause();
    }
    const int result = original(fd, command, argument);
    if (!number && result == 0 && type == F_WRLCK) {
        exclusive = fd;
    } else if (!number && result == 0 && type == F_RDLCK && fd == exclusive) {
        exclusive = -1;
        Pause();
    }
    return result;
}

//! DuckDB's wheel was built with a C library whose stat(2) is called so.
extern "C" int __xstat64(int version, const char *path, void *status) {
    using Stat = int(int, const char *, void *);
    static const auto original = reinterpret_cast<Stat *>(dlsym(RTLD_NEXT, "__xstat64"));
    static const char *const number = getenv("PAUSE_AT"), *const any = getenv("PAUSE_AT_ANY");
    const std::string name = path;
    const bool is_log = name.size() > 4 && name.compare(name.size() - 4, 4, ".wal") == 0;
    if (number && any && is_log && ++asked_for == atoi(number)) {
        Pause();
    }
    return original(version, path, status);
}

extern "C" int __xstat(int version, const char *path, void *status) {
    return __xstat64(version, path, status); // the same for 64 bits
}

extern "C" int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return fcntl64(fd, command, argument);
}
