//! An ordinary file on an ordinary file system, read and
//! written past the page cache with many commands in flight.
//!
//! Direct I/O works in whole pages; files do not. So a file is open twice: aligned pages go through BlockIo
//! with O_DIRECT, and what is left of a write at its two ends goes through a second, buffered descriptor. The
//! size is therefore always exact. Padding the last page and cutting it off later, as direct writers often
//! do, would leave a padded tail after a crash, and DuckDB refuses a write-ahead log that ends in zeros.
//!
//! Mixing both is coherent on Linux: before direct I/O on a range the kernel writes its dirty pages back, and
//! after a direct write it drops them (generic_file_direct_write, iomap_dio_rw). That works page by page, so
//! the direct part of a write consists of whole pages even where the disk would take less, and no page is
//! ever written both ways at once.
//!
//! Invariant: both descriptors and the lock are of one file. It is looked up
//! by its name once; what is opened later is opened through the first
//! descriptor, because by then the name may lead to another file, or nowhere.
//!
//! A write-ahead log goes through the buffered descriptor only. Its appends are small and unaligned, it is
//! read once, in order and 4 KiB at a time, and a crash must not leave a size that covers bytes which were
//! not written: a direct write of the middle of an append could extend the file before its buffered head is
//! on disk. Files of other kinds are read so, too, while they are small.
#pragma once

#include "io/storage_file.hpp"

#include "common/process/fork_generation.hpp"
#include "direct/locked_here.hpp"
#include "io/block_io.hpp"
#include "target/directory_entry.hpp"
#include "target/lock/target_lock.hpp"
#include "target/system/file_descriptor.hpp"
#include "volume/volume.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <sys/stat.h>

namespace rawduck {

class DirectFile final : public StorageFile {
  public:
    //! Opens the file at an absolute path. Throws Error NOT_FOUND, EXISTS,
    //! PERMISSION, LOCKED (also when stock DuckDB holds it, in this process or
    //! another), INVALID (not a regular file) or UNSUPPORTED (no O_DIRECT).
    static std::unique_ptr<DirectFile> Open(const std::string &path, const OpenMode &mode,
                                            const MountOptions &options = MountOptions());
    ~DirectFile() override;

    uint64_t Read(void *data, uint64_t length, uint64_t offset) override;
    void Write(const void *data, uint64_t length, uint64_t offset) override;
    uint64_t Append(const void *data, uint64_t length) override;
    void Sync() override;
    void Truncate(uint64_t size) override;
    bool Deallocate(uint64_t offset, uint64_t length) override;
    uint64_t Size() override;
    Status GetStatus() override;
    bool KernelReadsAhead() override { return mode_.kind == FileKind::OTHER && IsSmall(Size()); }
    void Close() override;

  private:
    DirectFile(std::string path, const OpenMode &mode, const MountOptions &options)
        : path_(std::move(path)), mode_(mode), options_(options) {}

    void OpenBuffered();
    bool Create(int flags, FileDescriptor::Closing closing);
    [[noreturn]] void ThrowNotCreated(int error_number) const;
    Target OpenedTarget() const;
    bool HasItsName() const;
    void Lock();
    BlockIo &Direct();
    bool IsSmall(uint64_t size) const;
    void ReadPages(char *data, uint64_t length, uint64_t offset, uint64_t size);
    void BufferedRead(char *data, uint64_t length, uint64_t offset);
    void BufferedWrite(const char *data, uint64_t length, uint64_t offset);
    uint64_t CheckTransfer(ssize_t bytes, const char *operation, int error_of_none, uint64_t length,
                           uint64_t offset) const;
    void Flush();
    void InvalidateRereads(uint64_t offset, uint64_t length);
    uint64_t SizeCovering(uint64_t end);
    void CheckWritable() const;
    [[noreturn]] void ThrowSystemError(const std::string &what, int error_number) const;

    const std::string path_;
    const OpenMode mode_;
    const MountOptions options_; //!< engine, queues, command size
    const uint64_t fork_generation_ = ForkGeneration();
    FileDescriptor buffered_;
    std::unique_ptr<TargetLock> lock_;
    std::optional<LockedHere> locked_here_; //!< as long as the lock
    std::shared_ptr<IoStats> stats_;
    bool created_ = false;            //!< by Open
    std::atomic<bool> failed_{false}; //!< a flush failed: no more writes

    std::mutex entry_mutex_; //!< guards what follows; held while its name is flushed
    //! Until its name is durable. Not of temporary files, which nobody looks for after a crash.
    bool name_is_new_ = false;
    //! Of a database and its log from the beginning; of others, of which a COPY may have hundreds open, when they are synced.
    std::optional<EntryFlush> entry_;

    //! Opened by the first read or write that has whole pages: most small files never need it.
    std::once_flag direct_once_;
    std::unique_ptr<BlockIo> direct_;

    std::mutex size_mutex_;               //!< orders looking up the size and Truncate
    std::atomic<uint64_t> known_size_{0}; //!< the file is at least this long

    std::mutex append_mutex_; //!< orders appends: each writes at the end that it finds; held during I/O
};

//! The status of an ordinary file, from stat(2).
StorageFile::Status StatusOf(const struct stat &status);

//! Whether this is a link such as /dev/stdout, to what a process has open. Whoever renames a file to it would replace the
//! link, and not what it leads to.
bool LeadsToOpenFile(const std::string &path);
//! Throws Error INVALID where it is.
void RequireNoOpenFile(const std::string &path);

} // namespace rawduck
