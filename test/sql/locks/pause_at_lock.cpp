//! Stops the process before the lock of that number (PAUSE_AT) of an open file description that it shares with others, until
//! somebody has done what he wants to. For test_turns.py, which preloads it.

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace {

int locks = 0;

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
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    const bool shares = command == F_OFD_SETLK && static_cast<struct flock *>(argument)->l_type == F_RDLCK;
    if (shares && ++locks == atoi(getenv("PAUSE_AT"))) {
        Pause();
    }
    return original(fd, command, argument);
}

extern "C" int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return fcntl64(fd, command, argument);
}
