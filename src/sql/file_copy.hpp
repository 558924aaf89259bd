//! Copies one file between any two of DuckDB's file systems, piece by piece.
#pragma once

#include "duckdb/common/file_system.hpp"

#include <atomic>
#include <memory>

namespace rawduck {

//! The destination appears under its name in one step, when everything is copied and durable. Both ends are
//! locked meanwhile. Not thread-safe, except for Progress.
class FileCopy {
  public:
    //! Opens both ends. Throws when the destination exists (unless `overwrite`), when either end is open
    //! elsewhere, or when a write-ahead log beside either end says that the file is not the whole database.
    FileCopy(duckdb::FileSystem &files, std::string source, std::string destination, bool overwrite);
    //! Leaves nothing behind unless Finish was reached.
    ~FileCopy();

    //! Copies the next piece. False when there was none left.
    bool CopyPiece();
    //! Makes the copy durable and gives it its name.
    void Finish();

    uint64_t Size() const { return size_; }
    double ProgressPercent() const;

  private:
    void CheckNames(bool overwrite);
    void RequireNoLog(const std::string &path, const char *advice);
    void OpenSource();
    void OpenDestination();

    duckdb::FileSystem &files_;
    const std::string source_path_, destination_path_, temporary_path_;
    duckdb::unique_ptr<duckdb::FileHandle> source_, destination_;
    duckdb::unique_ptr<duckdb::FileHandle> replaced_; //!< holds the lock on what will be overwritten
    std::unique_ptr<char, void (*)(void *)> buffer_;
    uint64_t size_ = 0;
    std::atomic<uint64_t> copied_{0};
    bool finished_ = false;
};

} // namespace rawduck
