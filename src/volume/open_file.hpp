//! A handle on a file of a volume.
#pragma once

#include "volume/file/file_info.hpp"

#include <cstdint>
#include <memory>

namespace rawduck {

class File;        // volume/file/file.hpp
class VolumeState; // volume/volume_state.hpp

struct OpenMode {
    bool read = true, write = false;
    bool create = false;      //!< create when missing
    bool truncate = false;    //!< FILE_CREATE_NEW: create when missing, empty what is there
    bool must_create = false; //!< throw EXISTS when it is there
    //! To be opened for writing without one, a file must not be locked by another.
    enum class Lock { NONE, SHARED, EXCLUSIVE } lock = Lock::NONE;
    //! For a new file. TEMP for what DuckDB opens as temporary only; never guessed from the name.
    FileKind kind = FileKind::OTHER;
};

//! A handle on an open file. Thread-safe except that the file must not be used after Close. Closing the last
//! writing handle publishes the size, as if synced. A removed or replaced file stays readable until closed.
class OpenFile {
  public:
    ~OpenFile();
    OpenFile(const OpenFile &) = delete;
    OpenFile &operator=(const OpenFile &) = delete;

    //! Reads `length` bytes, fewer only at the end of the file. Returns bytes read. Throws Error.
    uint64_t Read(void *data, uint64_t length, uint64_t offset);
    //! Writes all of it or throws Error (NO_SPACE, IO, READ_ONLY,
    //! POISONED). Extends the file when it ends later.
    void Write(const void *data, uint64_t length, uint64_t offset);
    //! Writes at the end; returns the offset that the data got.
    uint64_t Append(const void *data, uint64_t length);
    //! Everything written to this file, its creation and every earlier namespace operation become durable.
    void Sync();
    //! Durable on return. Shrinks only; truncated bytes never come back.
    void Truncate(uint64_t size);
    //! The range keeps its size and reads as anything afterwards. False when the device takes no hints.
    bool Deallocate(uint64_t offset, uint64_t length);
    uint64_t Size() const;
    FileInfo Info() const;
    //! Idempotent; the destructor calls it and swallows nothing but what a destructor must: call it yourself
    //! to see errors of the final publish.
    void Close();

  private:
    friend class Volume;
    OpenFile(std::shared_ptr<VolumeState> volume, std::shared_ptr<File> file, OpenMode mode);
    void RequireWrite() const;
    std::shared_ptr<VolumeState> volume_; //!< keeps it mounted
    std::shared_ptr<File> file_;
    OpenMode mode_;
};

} // namespace rawduck
