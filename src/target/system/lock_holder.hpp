//! Finds the holder of a lock or a device: for messages, and to distinguish a live process from requests that
//! a killed process has left in flight.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace rawduck {

//! Of a file, as fcntl(2) locks it. Length 0: all of it that may hold data.
struct ByteRange {
    uint64_t start = 0, length = 0;
};

//! No file is so long: from here on a locked byte says that a reader is there (ReaderLock).
constexpr uint64_t READERS_BEGIN = uint64_t(1) << 62;

//! The end of what is locked for that range.
inline uint64_t LockEnd(const ByteRange &range) {
    return range.length == 0 ? READERS_BEGIN : range.start + range.length;
}

bool Overlap(const ByteRange &left, const ByteRange &right);

struct LockHolder {
    long process = 0; //!< 0: none was found that lives
    //! Every process of this machine could be looked at. Not so in a container, where /proc hides what
    //! belongs to others (hidepid), or without the permission.
    bool everyone_seen = true;
};

//! Of a lock on the file behind `fd` that conflicts with a shared or an exclusive one of that range. A
//! process that is being killed does not count as living.
LockHolder FindLockHolder(int fd, bool shared, ByteRange range);

//! Whether anybody at all holds a lock on that part of a file that conflicts with a shared or an exclusive
//! one: for files that cannot be opened.
bool IsLocked(dev_t file_system, ino_t inode, ByteRange range, bool shared);

//! A process that has the block device open for writing, through whatever node. `except_fd`: a descriptor of
//! this process that does not count.
LockHolder FindDeviceWriter(dev_t device, int except_fd);

//! A process that has the character device open, this one included.
LockHolder FindOpener(dev_t character_device);

//! "process 4711 (python3)", "this process (4711)"; "another process" when it is unknown.
std::string HolderName(const LockHolder &holder);

} // namespace rawduck
