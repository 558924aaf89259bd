//! A handle on a file of a volume.
#pragma once

#include "io/storage_file.hpp"
#include "volume/file/file_info.hpp"
#include "volume/file/read_ahead.hpp"
#include "volume/mount/open_mode.hpp"

#include <cstdint>
#include <memory>

namespace rawduck {

class VolumeState; // volume/mount/volume_state.hpp

//! A handle on an open file. Thread-safe except that the file must not be used after Close. Closing the last
//! writing handle publishes the size, as if synced. A removed or replaced file stays readable until closed.
class OpenFile final : public StorageFile {
  public:
    ~OpenFile() override;

    uint64_t Read(void *data, uint64_t length, uint64_t offset) override;
    void ReadRanges(const std::vector<Range> &ranges) override;
    std::vector<MemoryPiece> Pin(const std::vector<Range> &ranges, MemoryPinner &pinner,
                                 std::unique_ptr<Hold> &hold) override;
    //! Writes all of it or throws Error (NO_SPACE, IO, READ_ONLY, POISONED). Extends the file when the range
    //! ends behind it.
    void Write(const void *data, uint64_t length, uint64_t offset) override;
    uint64_t Append(const void *data, uint64_t length) override;
    //! Everything written to this file, its creation and every earlier namespace operation become durable.
    void Sync() override;
    //! Durable on return. Shrinks only; truncated bytes never come back.
    void Truncate(uint64_t size) override;
    bool Deallocate(uint64_t offset, uint64_t length) override;
    uint64_t Size() override;
    Status GetStatus() override;
    FileInfo Info() const;
    //! Of what is durable, if nobody writes to the file.
    FileLayout Layout() const;
    //! Idempotent. The destructor calls it and cannot report errors of the final publish: call it yourself to
    //! see them.
    void Close() override;

    //! Keeps `owner`, such as a pin on the volume, until this handle is destroyed.
    void KeepAlive(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

  private:
    friend class Volume;
    OpenFile(std::shared_ptr<VolumeState> volume, std::shared_ptr<File> file, OpenMode mode);
    void BeginWrite();
    std::shared_ptr<const void> owner_;   //!< the first member: it goes when the file is closed
    std::shared_ptr<VolumeState> volume_; //!< keeps the volume mounted
    std::shared_ptr<File> file_;
    OpenMode mode_;
    ReadAhead read_ahead_;
};

//! What is known of a file without opening it.
StorageFile::Status StatusOf(const FileInfo &info);

} // namespace rawduck
