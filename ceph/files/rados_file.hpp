//! DuckDB's file handle of an object.
#pragma once

#include "ceph/pushdown/feedback/pool_feedback.hpp"
#include "ceph/rados/connection/interruptible.hpp"
#include "ceph/rados/pool/rados_pool.hpp"

#include "duckdb/common/file_system.hpp"

#include <mutex>
#include <string>

namespace rawduck_ceph {

//! An object opened either for reading or for writing. Reading is thread-safe and returns the version that
//! was opened. Written data is buffered and published as a whole by Close or Sync; a handle that is destroyed
//! without either leaves no object.
class RadosFileHandle final : public duckdb::FileHandle {
  public:
    //! For reading. `is_interrupted`: ends reads; of the query that opens the object.
    RadosFileHandle(duckdb::FileSystem &file_system, std::string path, duckdb::FileOpenFlags flags,
                    std::shared_ptr<RadosPool> pool, std::string object, const ObjectStatus &status,
                    InterruptScope::Check is_interrupted);
    //! For writing. `must_create`: Publish fails when the object exists.
    RadosFileHandle(duckdb::FileSystem &file_system, std::string path, duckdb::FileOpenFlags flags,
                    std::shared_ptr<RadosPool> pool, std::string object, bool must_create);
    ~RadosFileHandle() override = default; //!< discards what was not published

    void Close() override;

    //! Returns the bytes read: fewer than `length` only at the end of the object.
    uint64_t ReadAt(void *data, uint64_t length, uint64_t offset);
    void WriteAt(const void *data, uint64_t length, uint64_t offset);
    void Resize(uint64_t size);
    //! Writes the buffered data as the object, unless nothing has changed since the last call.
    void Publish();
    //! Closes the handle without publishing.
    void Discard();
    //! When writing: the size of the buffered data and no version.
    ObjectStatus Status() const;

    duckdb::idx_t position = 0; //!< of sequential reads and writes

  private:
    void RequireWriting() const;

    std::shared_ptr<RadosPool> pool_; //!< null when closed
    const std::string object_;
    const bool writing_;
    const ObjectStatus status_;
    const std::shared_ptr<PoolFeedback> feedback_; //!< null when writing
    const InterruptScope::Check is_interrupted_;

    //! Guards what follows: DuckDB may write from several threads. Held while publishing, which
    //! takes locks of rados/.
    mutable std::mutex mutex_;
    std::string written_;
    bool must_create_ = false;
    bool published_ = false; //!< whether the object equals written_
};

} // namespace rawduck_ceph
