//! What a DuckDB file handle needs of the file below it, whether it lies on a volume or on a file system.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rawduck {

class MemoryPinner;

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
    //! Keeps where a file lies in memory of this process: whoever would move or truncate it waits as long as this lives, so
    //! not for long. Used and destroyed by the thread that it was made for, which must not read the file otherwise.
    struct Hold {
        virtual ~Hold() = default;
    };
    struct MemoryPiece {
        const char *data;
        uint64_t length;
    };
    //! Where ranges, which lie within the file, lie in memory for a GPU, in pieces one behind the other; as long as `hold`
    //! lives, which is made where it is null. Their `data` is not used. Empty where they do not lie in memory, or cannot be
    //! pinned.
    virtual std::vector<MemoryPiece> Pin(const std::vector<Range> &, MemoryPinner &,
                                         std::unique_ptr<Hold> &) {
        return {};
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

    //! Whether reads of it go through the page cache, for which the kernel reads ahead.
    virtual bool KernelReadsAhead() { return false; }

    //! Idempotent. Throws what the last writes may still have to report.
    virtual void Close() = 0;
};

} // namespace rawduck
