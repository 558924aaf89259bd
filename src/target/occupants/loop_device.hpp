//! Loop devices and what lies below them, by device number and inode: the path that /sys gives may be gone,
//! or lead to something else by now.
#pragma once

#include "target/system/lock_holder.hpp"

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace rawduck {

//! What a loop device, or a partition of one, lies over.
struct Backing {
    std::string identity; //!< as Target::identity
    dev_t number = 0;     //!< of a block device; 0: it is a file
    dev_t file_system = 0;
    ino_t inode = 0;
    std::string path; //!< empty: no name that is known here leads to it
    ByteRange range;  //!< where the device lies in it
};

//! Nothing when that is no loop device, or nobody may ask. `fd`: of the device, or -1.
std::optional<Backing> BackingOf(dev_t number, int fd);

//! Throws Error UNSUPPORTED when the loop device `number`, or its disk, may give what it has read before of something that
//! has been written since. It lies over another device, and reads that through its page cache, which nobody tells of what is
//! written by NVMe passthrough, to the disk of a partition, or to what lies below. `below`: what it lies over.
void RequireNoPageCache(const std::string &target_name, dev_t number, const Backing &below);

struct LoopDevice {
    std::string name; //!< "loop0"
    ByteRange range;  //!< where it lies in what was asked about
    bool directly;    //!< not through another one
};

//! Every loop device on top of a file or device, or of a partition of it, directly or through other ones.
std::vector<LoopDevice> LoopsOver(const std::string &identity);

} // namespace rawduck
