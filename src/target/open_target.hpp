//! The one place where targets are opened.
#pragma once

#include "target/system/file_descriptor.hpp"
#include "target/system/open_error.hpp"
#include "target/target.hpp"

#include <string>
#include <sys/stat.h>

namespace rawduck {

//! OpenAboveStreams. A closed descriptor and `error_number` when the kernel refuses. Throws Error
//! DESCRIPTORS where there is none for it, which must not be taken for an answer about the target, IO
//! when the path no longer leads to the target that was resolved, or LOCKED when stock DuckDB has it open in
//! this process (target/system/posix_lock.hpp).
FileDescriptor TryOpenTarget(const Target &target, int flags, int &error_number);
//! The same, throwing ThrowOpenError's Error.
FileDescriptor OpenTarget(const Target &target, int flags);

} // namespace rawduck
