#include "volume/volume_file.hpp"

namespace rawduck {

StorageFile::Status StatusOf(const FileInfo &info) {
    StorageFile::Status status;
    status.size = info.size;
    status.modified_us = info.modified_us;
    const uint64_t place = info.extents.empty() ? 0 : info.extents[0].device_offset;
    status.version =
        std::to_string(info.size) + ":" + std::to_string(info.modified_us) + ":" + std::to_string(place);
    return status;
}

} // namespace rawduck
