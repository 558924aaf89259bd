//! The descriptors that TargetLock holds locks through, and the two kinds of locks.
#pragma once

#include "target/system/lock_holder.hpp"

namespace rawduck {

//! A forked child closes what is registered. Throws Error IO.
void RegisterLocked(int fd);
void UnregisterLocked(int fd);

//! A record lock of the open file description. 0 or errno. `type`: F_RDLCK, F_WRLCK or F_UNLCK.
int TryLock(int fd, short type, ByteRange range);
//! The same with flock(2), which needs no descriptor for writing. The range is the whole file.
int TryFlock(int fd, short type, ByteRange range);

} // namespace rawduck
