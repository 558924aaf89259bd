//! Protects the locks of DuckDB's own file system from us.
//!
//! Stock DuckDB locks a file with POSIX record locks, and POSIX drops all locks that a process has on a file
//! as soon as it closes any descriptor of it. Were we to open and close a file that stock DuckDB has attached
//! in this process, its lock would be gone without a word and another process could write to the database at
//! the same time. So such a file is not opened at all; and where stock DuckDB has opened it since we did, our
//! descriptor stays open until stock DuckDB has closed its own.
#pragma once

#include <string>
#include <sys/stat.h>

namespace rawduck {

//! Whether this process holds a POSIX lock on the file. Does not open it. False when /proc is not there.
bool HoldsPosixLock(const struct stat &status);

//! Throws Error LOCKED, naming the path, when this process holds a POSIX lock on the file there. Nothing
//! happens when there is no file.
void CheckNoPosixLock(const std::string &path);

//! close(2), but later where this process holds a POSIX lock on the file: the descriptor is kept until one is
//! closed here after that lock has ended. Thread-safe; keeps errno.
void CloseKeepingPosixLocks(int fd);

} // namespace rawduck
