//! Finds out who holds a lock or a device, for messages, and to tell a process that lives from the requests
//! that a process which was killed has left behind.
#pragma once

#include <string>
#include <sys/types.h>

namespace rawduck {

struct LockHolder {
    long process = 0; //!< 0: none was found that lives
    //! Every process of this machine (of this PID namespace) could be looked at.
    bool everyone_seen = true;
};

//! Of a lock on the file behind `fd` that conflicts with a shared or an exclusive one. A process that is
//! being killed does not count as living.
LockHolder FindLockHolder(int fd, bool shared);

//! A process that has the block device open for writing, through whatever node. `except_fd`: a descriptor of
//! this process that does not count.
LockHolder FindDeviceWriter(dev_t device, int except_fd);

//! "process 4711 (python3)", "this process (4711)"; "another process" when it is unknown.
std::string HolderName(const LockHolder &holder);

} // namespace rawduck
