//! The descriptor that carries the I/O: the one that holds the lock.
#pragma once

#include "target/lock/target_lock.hpp"

namespace rawduck {

//! The lock's descriptor for this node, borrowed, or where there is none (or no lock) a new one with these
//! flags: for reading and writing, unless that is not wanted or refused, otherwise for reading. `read_only`
//! becomes what it is. A closed descriptor and `error_number` when the kernel refuses both.
FileDescriptor OpenForIo(const Target &node, const TargetLock *lock, int flags, bool &read_only,
                         int &error_number);

} // namespace rawduck
