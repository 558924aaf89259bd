//! Reads metadata around LBAs that the device cannot read: an unreadable LBA must not hide the others. And the data
//! that a log record vouches for.
#pragma once

#include "io/block_io.hpp"
#include "volume/format/record.hpp"

#include <map>
#include <string>
#include <vector>

namespace rawduck {

//! LBAs that could not be read, by their byte offset on the target, with the error of each, which names
//! target, LBA and cause.
using UnreadableLbas = std::map<uint64_t, std::string>;

//! The error of the first LBA that starts in this range of the target; empty when there is none.
std::string ErrorWithin(const UnreadableLbas &unreadable, uint64_t device_offset, uint64_t length);

//! Of one read: with more, not the medium fails but the device.
constexpr size_t UNREADABLE_LBAS_MAX = 256;

//! Reads a range of the target. An LBA that cannot be read is zeros in `data` and is added to `unreadable`.
//! Throws Error as BlockIo::Read, IO only when more than UNREADABLE_LBAS_MAX LBAs cannot be read.
void ReadAround(BlockIo &io, uint64_t device_offset, char *data, uint64_t length, UnreadableLbas &unreadable);

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
