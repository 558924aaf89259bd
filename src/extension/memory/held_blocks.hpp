//! Whether somebody still holds blocks of a database file that is being closed.
#pragma once

#include "duckdb/common/file_system.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/storage/block_manager.hpp"

#include <atomic>
#include <memory>
#include <vector>

namespace rawduck {

//! The handle that a database in DuckDB's own format has of its file; null where there is none. It is open as long as the
//! database is attached.
duckdb::FileHandle *FileHandleOf(duckdb::BlockManager &block_manager);

//! The blocks of a database that are held when its file is closed, by DuckDB's threads (ReaderThreads says why) or by
//! what lists the database's metadata. They are held here, too, so that they end in the thread that closes, while
//! their block manager still is. Not thread-safe.
class HeldBlocks {
  public:
    //! Null where the block manager is not being destroyed, or where a block ends at this moment: nothing shows when
    //! that is over.
    static std::unique_ptr<HeldBlocks> Of(duckdb::BlockManager &block_manager);
    //! Whether the other threads have let go of all of them. They cannot get any again.
    bool OthersHaveReleased();

  private:
    struct Held {
        duckdb::shared_ptr<duckdb::BlockHandle> block;
        long holders; //!< this object, and those that are no threads
    };
    std::vector<Held> blocks_;
};

//! The block manager of the database that is in a file. Thread-safe.
class BlockManagerOfFile {
  public:
    //! Looks for it among the databases that are attached, until it is found. To be called within queries that read
    //! the file: then its database is attached.
    void LookFor(duckdb::DatabaseInstance &instance, const duckdb::FileHandle &file);
    //! Null: not found. It lives longer than the file is open, since it owns the file.
    duckdb::BlockManager *Get() const { return found_.load(std::memory_order_acquire); }

  private:
    //! A database that is being attached is found later, one that is not DuckDB's own never.
    static constexpr uint32_t ATTEMPTS_MAX = 1000;

    std::atomic<duckdb::BlockManager *> found_{nullptr};
    std::atomic<uint32_t> attempts_{0};
};

} // namespace rawduck
