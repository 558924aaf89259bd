//! Stops the process whenever it makes an exclusive lock of an open file description shared, until somebody has
//! looked at what others can see now. For test_copy_meanwhile.py, which preloads it.

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace {

int exclusive = -1; //!< the descriptor whose lock is

void Pause() {
    const std::string shared = std::string(getenv("PAUSE_FOLDER")) + "/shared";
    fclose(fopen(shared.c_str(), "w"));
    while (access(shared.c_str(), F_OK) == 0) { // who has looked removes it
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
    const int result = original(fd, command, argument);
    if (command == F_OFD_SETLK && result == 0) {
        const short type = static_cast<struct flock *>(argument)->l_type;
        if (type == F_WRLCK) {
            exclusive = fd;
        } else if (type == F_RDLCK && fd == exclusive) {
            exclusive = -1;
            Pause();
        }
    }
    return result;
}

extern "C" int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return fcntl64(fd, command, argument);
}
