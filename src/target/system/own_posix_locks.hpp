//! The POSIX locks of this process, as the kernel lists them: one read, however many files are open.
#pragma once

#include <string>
#include <sys/stat.h>
#include <vector>

namespace rawduck {

enum class Held { NO, YES, UNKNOWN };

//! Whether this process holds a POSIX lock on the file at `path`, whose status is given. UNKNOWN where the list
//! is not to be had, is hidden or longer than can be read at once, or where the file system has other names for
//! its files than stat(2) and this process has locks. Opens nothing but the list. Thread-safe; also in a child
//! made by fork(). May throw std::bad_alloc.
Held AskLockList(const std::string &path, const struct stat &status);
//! Of an open file.
Held AskLockList(int fd, const struct stat &status);

//! A descriptor, as text, through which this process has a lock that must be shown wherever such locks are. Empty: there is none.
std::string LockWitness();

} // namespace rawduck
