//! What lies on a target, by its bytes. The user may decide to give it up.
#pragma once

#include "target/target.hpp"

#include <string>
#include <vector>

namespace rawduck {

struct Content {
    //! "volume", "member" (of a volume on several targets), "database", "file system", "swap", "raid", "encrypted",
    //! "signature", "partition table", "partitions", "file".
    std::string kind;
    std::string what; //!< a clause as in Occupant::what
    std::string uuid; //!< that it says it has; of a member, the stripe's. Empty: none
};

//! `fd` is the target, opened for reading. Throws Error IO when it cannot be read.
std::vector<Content> FindContents(const Target &target, int fd);

//! Differs where other bytes lie at the beginning or at the end of it or of one of its partitions: file systems and volumes
//! change theirs with every mount that writes. Where it is another size, file or drive, too, and where somebody has written
//! to a file since. `fd` as above, or a copy of both ends. What cannot be read counts as such. Throws
//! Error IO where not even the size is told.
std::string Fingerprint(const Target &target, int fd);

//! Whether there is a rawduck volume, also one with a damaged superblock, or a part of one. `fd` and errors as above.
bool HoldsVolume(const Target &target, int fd);

} // namespace rawduck
