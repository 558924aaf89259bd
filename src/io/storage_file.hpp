//! What a DuckDB file handle needs of the file below it, whether it lies on a volume or on a file system.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

//! An open file. Thread-safe, except that nothing may run during or after Close. All functions throw Error.
class StorageFile {
  public:
    virtual ~StorageFile() = default;
    StorageFile() = default;
    StorageFile(const StorageFile &) = delete;
    StorageFile &operator=(const StorageFile &) = delete;

    //! Fewer bytes than asked for only at the end of the file. Returns bytes read.
    virtual uint64_t Read(void *data, uint64_t length, uint64_t offset) = 0;
    struct Range {
        uint64_t offset;
        uint64_t length;
        char *data;
    };
    //! Reads all ranges, which lie within the file; on a volume with commands of all of them in flight at once.
    virtual void ReadRanges(const std::vector<Range> &ranges) {
        for (const Range &range : ranges) {
            if (Read(range.data, range.length, range.offset) != range.length) {
                throw Error(ErrorCode::IO, "the file ends before byte " +
                                               std::to_string(range.offset + range.length) +
                                               ", which was to be read");
            }
        }
    }
    virtual void Write(const void *data, uint64_t length, uint64_t offset) = 0;
    //! Writes at the end; returns the offset that the data got.
    virtual uint64_t Append(const void *data, uint64_t length) = 0;
    //! Everything written, and that the file exists, is durable on return.
    virtual void Sync() = 0;
    virtual void Truncate(uint64_t size) = 0;
    //! The range keeps its size and reads as anything afterwards. False where that is not supported.
    virtual bool Deallocate(uint64_t offset, uint64_t length) = 0;
    virtual uint64_t Size() = 0;

    struct Status {
        uint64_t size = 0;
        int64_t modified_us = 0; //!< microseconds since 1970-01-01 UTC
        std::string version;     //!< differs when the contents may differ
    };
    virtual Status GetStatus() = 0;

    //! Idempotent. Throws what the last writes may still have to report.
    virtual void Close() = 0;
};

} // namespace rawduck
