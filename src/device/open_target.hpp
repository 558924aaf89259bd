//! The one place where targets are opened.
#pragma once

#include "device/file_descriptor.hpp"
#include "device/target.hpp"

#include <string>
#include <sys/stat.h>

namespace rawduck {

class TargetLock; // device/target_lock.hpp

//! Throws the Error that fits a failed open or stat of a target: NOT_FOUND, PERMISSION or IO, with what to
//! do.
[[noreturn]] void ThrowOpenError(const std::string &target_name, const std::string &operation,
                                 int error_number);

//! See Target::identity.
std::string IdentityOf(const struct stat &status);

//! open(2) with O_CLOEXEC, for what holds data: never one of the three lowest descriptors, which a program
//! that has closed its standard streams would go on to write its messages to. -1 and errno as open(2).
int OpenAboveStreams(const char *path, int flags, mode_t mode = 0);

//! OpenAboveStreams. A closed descriptor and `error_number` when the kernel refuses. Throws Error IO
//! when the path no longer leads to the target that was resolved, or LOCKED when stock DuckDB has it open in
//! this process (device/posix_lock.hpp).
FileDescriptor TryOpenTarget(const Target &target, int flags, int &error_number);
//! The same, throwing ThrowOpenError's Error.
FileDescriptor OpenTarget(const Target &target, int flags);

//! The lock's descriptor for this node, borrowed, or where there is none (or no lock) a new one with these
//! flags: for reading and writing, unless that is not wanted or refused, otherwise for reading. `read_only`
//! becomes what it is. A closed descriptor and `error_number` when the kernel refuses both.
FileDescriptor OpenForIo(const Target &node, const TargetLock *lock, int flags, bool &read_only,
                         int &error_number);

} // namespace rawduck
