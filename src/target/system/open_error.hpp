//! What is thrown when a target cannot be opened, and how descriptors are kept off the standard streams.
#pragma once

#include <string>
#include <sys/types.h>

namespace rawduck {

//! Throws the Error that fits a failed open or stat of a
//! target: NOT_FOUND, PERMISSION, DESCRIPTORS or IO, with what to do.
[[noreturn]] void ThrowOpenError(const std::string &target_name, const std::string &operation,
                                 int error_number);

//! open(2) with O_CLOEXEC, for what holds data: never one of the three lowest descriptors, which a program
//! that has closed its standard streams would go on to write its messages to. -1 and errno as open(2).
int OpenAboveStreams(const char *path, int flags, mode_t mode = 0);

} // namespace rawduck
