//! Copies one file between any two of DuckDB's file systems, piece by piece.
#pragma once

#include "target/lock/target_lock.hpp"
#include "target/system/file_descriptor.hpp"
#include "volume/registry.hpp"

#include "duckdb/common/file_system.hpp"

#include <atomic>
#include <memory>

namespace rawduck {

//! The destination appears under its name in one step, when everything is
//! copied and durable. Both ends are locked meanwhile, and what is made under
//! that name since is never replaced. Not thread-safe, except for Progress.
class FileCopy {
  public:
    //! Opens both ends. Throws when there is no room for the copy, when the destination exists (unless `overwrite`), when either end is open
    //! elsewhere, or when a write-ahead log beside either end says that the file is not the whole database.
    FileCopy(duckdb::FileSystem &files, std::string source, std::string destination, bool overwrite);
    //! Leaves nothing behind unless Finish was reached.
    ~FileCopy();

    //! Copies the next piece. False when there was none left.
    bool CopyPiece();
    //! Makes the copy durable and gives it its name. Throws when somebody has made a file or a write-ahead
    //! log there meanwhile.
    void Finish();

    uint64_t Size() const { return size_; }
    double ProgressPercent() const;

  private:
    void RemoveUnfinished() noexcept;
    void CheckNames(bool overwrite);
    void RequireNoLog(const std::string &path, const char *advice);
    bool IsEmpty(const std::string &path);
    void LockReplaced();
    void OpenSource();
    void ReadSource(uint64_t length, uint64_t offset);
    void OpenDestination();
    void KeepAccess();
    //! Removes what killed copies left. Throws unless everything fits.
    void MakeRoom();
    void TakeName();

    duckdb::FileSystem &files_;
    std::string source_path_, destination_path_, temporary_path_;
    VolumePin volume_; //!< of the destination; the handles go before
    duckdb::unique_ptr<duckdb::FileHandle> source_, destination_;
    //! Instead of source_, of a file that stock DuckDB may open too.
    std::unique_ptr<TargetLock> source_lock_;
    FileDescriptor local_source_;
    std::unique_ptr<TargetLock> destination_lock_; //!< of an ordinary file
    //! The lock on what will be overwritten: a handle, or that of an ordinary file.
    duckdb::unique_ptr<duckdb::FileHandle> replaced_;
    std::unique_ptr<TargetLock> replaced_lock_;
    Target replaced_target_;
    std::unique_ptr<char, void (*)(void *)> buffer_;
    uint64_t size_ = 0;
    std::atomic<uint64_t> copied_{0};
    bool finished_ = false;
};

} // namespace rawduck
