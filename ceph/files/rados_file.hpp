//! Open objects.
#pragma once

#include "ceph/pushdown/feedback/pool_feedback.hpp"
#include "ceph/rados/pool/rados_pool.hpp"

#include "duckdb/common/file_system.hpp"

#include <mutex>
#include <string>

namespace rawduck_ceph {

//! An object opened for reading or for writing, never for both. Reading is thread-safe and sees the object as
//! it was when it was opened. What is written is collected, and becomes the object, whole, at Close or Sync:
//! an object that was not closed never appears.
class RadosFileHandle final : public duckdb::FileHandle {
  public:
    //! For reading.
    RadosFileHandle(duckdb::FileSystem &file_system, std::string path, duckdb::FileOpenFlags flags,
                    std::shared_ptr<RadosPool> pool, std::string object, const ObjectStatus &status);
    //! For writing. `must_create`: an object that is there already when this one is published is an error.
    RadosFileHandle(duckdb::FileSystem &file_system, std::string path, duckdb::FileOpenFlags flags,
                    std::shared_ptr<RadosPool> pool, std::string object, bool must_create);
    ~RadosFileHandle() override = default; //!< what was written and not closed is discarded

    void Close() override;

    //! Fewer bytes than asked for only at the end of the object. Returns bytes read.
    uint64_t ReadAt(void *data, uint64_t length, uint64_t offset);
    void WriteAt(const void *data, uint64_t length, uint64_t offset);
    void Resize(uint64_t size);
    void Publish();
    void Discard();
    //! Of an object that is being written: its size so far and no version.
    ObjectStatus Status() const;

    duckdb::idx_t position = 0; //!< of sequential reads and writes

  private:
    void RequireWriting() const;

    std::shared_ptr<RadosPool> pool_; //!< null when closed
    const std::string object_;
    const bool writing_;
    const ObjectStatus status_;
    const std::shared_ptr<PoolFeedback> feedback_; //!< null when writing

    mutable std::mutex mutex_; //!< guards what follows; DuckDB may write from several threads
    std::string written_;
    bool must_create_ = false;
    bool published_ = false; //!< whether the object is what was written so far
};

} // namespace rawduck_ceph
