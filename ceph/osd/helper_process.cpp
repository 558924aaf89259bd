#include "ceph/osd/helper_process.hpp"

#include "ceph/channel/packets.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace rawduck_ceph {

namespace {

//! A program that ends at once must not be started for every call.
constexpr std::chrono::seconds RESTART_AFTER{2};
//! How long it may take until it listens: it loads DuckDB first.
constexpr std::chrono::seconds STARTING{10};

} // namespace

HelperProcess::HelperProcess(std::string program, std::string directory)
    : program_(std::move(program)), directory_(std::move(directory)) {}

std::string HelperProcess::Start() {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto now = Clock::now();
    if (child_ > 0) {
        int status = 0;
        if (waitpid(child_, &status, WNOHANG) == 0) {
            // It runs. Another OSD's may listen instead of it, or it is about to.
            return now - started_ < STARTING ? "" : "the helper process does not listen in " + directory_;
        }
        child_ = 0;
        failure_ = "the helper process has ended; its log is that of the OSD";
    }
    if (started_ != Clock::time_point() && now - started_ < RESTART_AFTER) {
        return failure_;
    }
    started_ = now;
    failure_ = Spawn();
    return failure_;
}

std::string HelperProcess::Spawn() {
    try {
        RequirePrivateDirectory(directory_);
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // Not in the OSD's session, and without the signals that its threads block or ignore.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const std::string directory = "--socket-dir=" + directory_;
    char *arguments[] = {const_cast<char *>(program_.c_str()), const_cast<char *>(directory.c_str()),
                         const_cast<char *>("--end-when-unused"), nullptr};
    pid_t child = 0;
    const int error = posix_spawn(&child, program_.c_str(), &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        return "starting " + program_ + ": " + std::strerror(error) +
               "; it must lie beside libcls_rawduck.so, or beside the file that this is a link to";
    }
    child_ = child;
    return "";
}

} // namespace rawduck_ceph
