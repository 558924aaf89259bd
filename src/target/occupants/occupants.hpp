//! Why a target must not be formatted, and the block devices of the machine with what is on them.
#pragma once

#include "target/inspect.hpp"
#include "target/occupants/claim_check.hpp"
#include "target/target.hpp"

#include <string>
#include <vector>

namespace rawduck {

//! Every reason why writing to this target would destroy something: mounted
//! (itself or a partition), swap, holders (device mapper, md), partitions,
//! known signatures (libblkid), a rawduck volume. Empty: free to use.
struct Occupant {
    std::string what; //!< a clause such as "it is mounted on /home" or "it carries an ext4 file system"
    bool forceable =
        false; //!< contents, which the user may give up; false: in use, and never to be overwritten
    // Of contents.
    std::string kind, uuid; //!< see Content
    //! By which the user agrees to give up this and nothing else: the kind and the Fingerprint. Not from ListBlockDevices.
    std::string identity;
};
//! Targets without a node: always empty. What lies on a VFIO function is found by FindContents.
std::vector<Occupant> FindOccupants(const Target &target, ClaimCheck claim = ClaimCheck::ASK);

//! Only its contents. `fd` is the target, opened for reading, or a copy of both its ends.
std::vector<Occupant> OccupantsIn(const Target &target, int fd);

//! One row per block device of the machine (/sys/block and partitions), for `rawduck devices`.
struct DeviceRow {
    std::string path;
    TargetInfo info;
    std::vector<Occupant> occupants;
    std::string error; //!< why it could not be inspected; the other fields are then partial
};
std::vector<DeviceRow> ListBlockDevices();

} // namespace rawduck
