//! Protects the locks of DuckDB's own file system from us.
//!
//! Stock DuckDB locks a file with POSIX record locks, and POSIX drops all locks that a process has on a file
//! as soon as it closes any descriptor of it. Were we to open and close a file that stock DuckDB has attached
//! in this process, its lock would be gone without a word and another process could write to the database at
//! the same time. So such a file is not opened at all; and where stock DuckDB has opened it since we did, our
//! descriptor stays open until stock DuckDB has closed its own.
//!
//! Three ways to know. The kernel tells one lock that conflicts with a descriptor's (F_OFD_GETLK), and whose it
//! is; that says nothing when it tells another one than this process's, but for one for writing. /proc shows the locks of
//! each descriptor of this process, without opening anything, which takes the longer the more there are. And the kernel
//! lists all locks in /proc/locks (own_posix_locks.hpp). The last two may not be there. When none says, a descriptor stays
//! open. Stock DuckDB could lock between the question and the close: a lock of ours keeps it from that, for writing;
//! where it opens a database to read it at that very moment, its lock may still be lost.
#pragma once

#include <string>

namespace rawduck {

//! Throws Error LOCKED, naming the path, when this process holds a POSIX lock on the file there. Nothing
//! happens when there is no file.
void CheckNoPosixLock(const std::string &path);
//! The same for a file that is open, and is closed with CloseKeepingPosixLocks when this throws. Takes one system call where
//! nobody has a lock on it, and no look at lists: the first look after a pause takes milliseconds.
void CheckNoPosixLock(const std::string &path, int fd);
//! Whether some descriptor could not be closed yet: then it is better to ask before a file is opened.
bool AnyKeptForPosixLocks();

//! close(2), but later where this process holds a POSIX lock on the file: the descriptor is kept until one is
//! closed here after that lock has ended. It stays open for good where there is no memory to remember it.
//! Thread-safe; keeps errno.
void CloseKeepingPosixLocks(int fd) noexcept;

} // namespace rawduck
