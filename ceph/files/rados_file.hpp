//! DuckDB's file handle of an object.
#pragma once

#include "ceph/files/query_outputs.hpp"
#include "ceph/pushdown/feedback/pool_feedback.hpp"
#include "ceph/rados/connection/interruptible.hpp"
#include "ceph/rados/pool/rados_pool.hpp"

#include "duckdb/common/file_system.hpp"

#include <mutex>
#include <string>

namespace rawduck_ceph {

//! While it lives, objects that its thread opens for writing are published by every write. For EXPORT DATABASE, which
//! writes a file by one call and then does not close it.
class PublishWritesScope {
  public:
    PublishWritesScope() { active_ = true; }
    ~PublishWritesScope() { active_ = false; }
    PublishWritesScope(const PublishWritesScope &) = delete;
    PublishWritesScope &operator=(const PublishWritesScope &) = delete;

    //! In the calling thread.
    static bool IsActive() { return active_; }

  private:
    inline static thread_local bool active_ = false;
};

//! An object opened either for reading or for writing. Reading is thread-safe and returns the version that
//! was opened. Written data is buffered and published as a whole by Close or Sync; a handle that is destroyed
//! without either leaves no object, because DuckDB so abandons a COPY that fails.
class RadosFileHandle final : public duckdb::FileHandle {
  public:
    //! For reading. `is_interrupted`: ends reads; of the query that opens the object.
    RadosFileHandle(duckdb::FileSystem &file_system, std::string path, duckdb::FileOpenFlags flags,
                    std::shared_ptr<RadosPool> pool, std::string object, const ObjectStatus &status,
                    InterruptScope::Check is_interrupted);
    //! For writing. `must_create`: Publish fails when the object exists. `outputs`: is told what is published; of
    //! the query that opens the object, or null.
    RadosFileHandle(duckdb::FileSystem &file_system, std::string path, duckdb::FileOpenFlags flags,
                    std::shared_ptr<RadosPool> pool, std::string object, bool must_create,
                    duckdb::shared_ptr<QueryOutputs> outputs);
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
    const bool publishes_writes_; //!< opened in a PublishWritesScope
    const ObjectStatus status_;
    const std::shared_ptr<PoolFeedback> feedback_; //!< null when writing
    const InterruptScope::Check is_interrupted_;
    const duckdb::shared_ptr<QueryOutputs> outputs_;

    //! Guards what follows: DuckDB may write from several threads. Held while publishing, which
    //! takes locks of rados/ and that of outputs_.
    mutable std::mutex mutex_;
    std::string written_;
    bool must_create_ = false;
    bool published_ = false; //!< whether the object equals written_
};

} // namespace rawduck_ceph
