//! Whether the data that a record vouches for is what it says.
#pragma once

#include "volume/format/record.hpp"
#include "volume/log/salvage_read.hpp"

#include <vector>

namespace rawduck {

//! The data whose checksums a record has. TORN takes precedence over UNREADABLE: then the record was never
//! durable, whatever happened to its other data.
enum class DataState { WHOLE, TORN, UNREADABLE };

//! Where data of files can lie, in allocation units.
struct DataPlace {
    uint32_t lba_size = 0;
    uint64_t start = 0, end = 0;
};

//! `unreadable` says what cannot be read. Throws as ReadAround does.
DataState ExamineData(BlockIo &io, const DataPlace &place, const std::vector<Item> &items,
                      UnreadableLbas &unreadable);

} // namespace rawduck
