#include "target/occupants/same_bytes.hpp"

#include "target/occupants/loop_device.hpp"
#include "target/system/sysfs.hpp"

#include <sys/stat.h>

namespace rawduck {
namespace {

//! Where a target lies on the lowest file or disk that is known of.
struct Place {
    std::string base; //!< an identity
    ByteRange range;
};

void Narrow(Place &place, const std::string &base, const ByteRange &range) {
    place.base = base;
    place.range = {range.start + place.range.start,
                   place.range.length == 0 ? range.length : place.range.length};
}

//! A partition is part of its disk.
void LeavePartition(Place &place, dev_t &number) {
    const std::string directory = SysfsDirectory(number);
    uint64_t start = 0, sectors = 0;
    if (directory.empty() || !IsPartition(directory) || !ReadNumber(directory + "/start", start) ||
        !ReadNumber(directory + "/size", sectors)) {
        return;
    }
    number = DeviceNumber(ReadAttribute(DiskDirectory(directory) + "/dev"));
    Narrow(place, "block:" + DeviceNumberText(number),
           {start * SYSFS_SECTOR_BYTES, sectors * SYSFS_SECTOR_BYTES});
}

Place PlaceOf(const Target &target) {
    const Target node = BlockDeviceOf(target);
    Place place{node.identity, {}};
    struct stat status;
    if (node.kind != TargetKind::BLOCK_DEVICE || stat(node.path.c_str(), &status) != 0) {
        return place;
    }
    dev_t number = status.st_rdev;
    // What lies over a partition of a loop device is known by its place in what that lies over.
    while (const std::optional<Backing> below = BackingOf(number, -1)) {
        Narrow(place, below->identity, below->range);
        number = below->number;
        if (number == 0) {
            return place; // a file
        }
    }
    LeavePartition(place, number);
    return place;
}

} // namespace

bool ShareBytes(const Target &left, const Target &right) {
    const Place a = PlaceOf(left), b = PlaceOf(right);
    return a.base == b.base && Overlap(a.range, b.range);
}

} // namespace rawduck
