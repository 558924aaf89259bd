//! Shared by the tests of src/io and src/target.
#pragma once

#include "common/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace rawduck {

//! In the working directory, which is the build directory: /tmp may be a file system without direct I/O.
class TemporaryFile {
  public:
    explicit TemporaryFile(uint64_t size) {
        std::string name = std::string(getcwd(directory_, sizeof directory_)) + "/rawduck_test_XXXXXX";
        int fd = mkstemp(name.data());
        EXPECT_GE(fd, 0) << name;
        EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
        close(fd);
        path_ = name;
    }
    ~TemporaryFile() { unlink(path_.c_str()); }
    TemporaryFile(const TemporaryFile &) = delete;
    TemporaryFile &operator=(const TemporaryFile &) = delete;
    const std::string &Path() const { return path_; }

  private:
    char directory_[4096];
    std::string path_;
};

//! RAWDUCK_ONE_SEED_IN: a long test tries one of that many seeds or steps. 1 where it is not set.
inline uint64_t OneSeedIn() {
    const char *setting = std::getenv("RAWDUCK_ONE_SEED_IN");
    return setting ? std::max(1, atoi(setting)) : 1;
}

//! The Error which `action` must throw.
inline Error CatchError(const std::function<void()> &action) {
    try {
        action();
    } catch (const Error &error) {
        return error;
    }
    ADD_FAILURE() << "no Error was thrown";
    return Error(ErrorCode::INVALID, "no Error was thrown");
}

//! Runs `body` in a forked child; true when it returned true there.
inline bool InChild(const std::function<bool()> &body) {
    pid_t child = fork();
    if (child == 0) {
        bool good = false;
        try {
            good = body();
        } catch (const std::exception &error) {
            fprintf(stderr, "in the child: %s\n", error.what());
        }
        _exit(good ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

//! A child that does something, then lives until it is told to end.
class ChildProcess {
  public:
    explicit ChildProcess(const std::function<bool()> &prepare) {
        int ready[2], stop[2];
        EXPECT_EQ(pipe(ready) + pipe(stop), 0);
        pid_ = fork();
        if (pid_ == 0) {
            close(ready[0]);
            close(stop[1]);
            char byte = 0;
            try {
                byte = prepare() ? 'y' : 'n';
            } catch (const std::exception &error) {
                fprintf(stderr, "in the child: %s\n", error.what());
            }
            ssize_t count = write(ready[1], &byte, 1);
            count += read(stop[0], &byte, 1);
            _exit(count < 0 ? 1 : 0);
        }
        close(ready[1]);
        close(stop[0]);
        char byte = 0;
        EXPECT_EQ(read(ready[0], &byte, 1), 1);
        EXPECT_EQ(byte, 'y');
        close(ready[0]);
        stop_ = stop[1];
    }
    ~ChildProcess() { End(); }
    ChildProcess(const ChildProcess &) = delete;
    ChildProcess &operator=(const ChildProcess &) = delete;

    pid_t Pid() const { return pid_; }
    void End() {
        if (stop_ >= 0) {
            close(stop_);
            stop_ = -1;
            waitpid(pid_, nullptr, 0);
        }
    }

  private:
    pid_t pid_ = -1;
    int stop_ = -1;
};

//! Bytes that differ from place to place.
inline std::vector<char> Pattern(size_t size, uint32_t seed) {
    std::vector<char> bytes(size);
    uint32_t state = seed * 2654435761u + 1;
    for (auto &byte : bytes) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<char>(state >> 24);
    }
    return bytes;
}

} // namespace rawduck
