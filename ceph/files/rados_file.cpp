#include "ceph/files/rados_file.hpp"

#include "ceph/parquet/footer_checksum.hpp"
#include "ceph/parquet/object_statistics.hpp"
#include "ceph/pushdown/feedback/pushdown_feedback.hpp"
#include "ceph/rados/connection/rados_path.hpp"
#include "common/error.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck_ceph {

using rawduck::Error;
using rawduck::ErrorCode;

using duckdb::FileOpenFlags;
using duckdb::FileSystem;

RadosFileHandle::RadosFileHandle(FileSystem &file_system, std::string path, FileOpenFlags flags,
                                 std::shared_ptr<RadosPool> pool, std::string object,
                                 const ObjectStatus &status, InterruptScope::Check is_interrupted)
    : FileHandle(file_system, std::move(path), flags), pool_(std::move(pool)), object_(std::move(object)),
      writing_(false), publishes_writes_(false), status_(status),
      feedback_(PushdownFeedback::OfProcess().Of(pool_)), is_interrupted_(std::move(is_interrupted)) {}

RadosFileHandle::RadosFileHandle(FileSystem &file_system, std::string path, FileOpenFlags flags,
                                 std::shared_ptr<RadosPool> pool, std::string object, bool must_create,
                                 duckdb::shared_ptr<QueryOutputs> outputs)
    : FileHandle(file_system, std::move(path), flags), pool_(std::move(pool)), object_(std::move(object)),
      writing_(true), publishes_writes_(PublishWritesScope::IsActive()), status_(),
      outputs_(std::move(outputs)), must_create_(must_create) {}

void RadosFileHandle::Close() {
    if (!pool_) {
        return;
    }
    if (writing_) {
        Publish();
    }
    Discard();
}

uint64_t RadosFileHandle::ReadAt(void *data, uint64_t length, uint64_t offset) {
    if (!pool_ || writing_) {
        throw Error(ErrorCode::INVALID, path + ": the object is not open for reading");
    }
    const uint64_t available = offset < status_.size ? std::min(length, status_.size - offset) : 0;
    const InterruptScope scope(is_interrupted_);
    pool_->Read(object_, status_.version, data, available, offset);
    feedback_->tails.RecordRead(object_, status_, data, available, offset);
    return available;
}

void RadosFileHandle::RequireWriting() const {
    if (!pool_ || !writing_) {
        throw Error(ErrorCode::READ_ONLY, path + ": the object is not open for writing");
    }
}

void RadosFileHandle::WriteAt(const void *data, uint64_t length, uint64_t offset) {
    RequireWriting();
    std::unique_lock<std::mutex> guard(mutex_);
    const uint64_t end = offset + length;
    if (end > RadosPool::OBJECT_BYTES_MAX) {
        throw Error(ErrorCode::NO_SPACE,
                    path + ": the object would be larger than " +
                        std::to_string(RadosPool::OBJECT_BYTES_MAX >> 20) +
                        " MiB, about what Ceph takes in one write. Write several objects: COPY ... TO "
                        "'rados://<pool>/<prefix>' (FORMAT parquet, FILE_SIZE_BYTES '8MB', "
                        "ROW_GROUP_SIZE_BYTES '64MB')");
    }
    if (end > written_.size()) {
        written_.resize(end);
    }
    std::memcpy(&written_[offset], data, length);
    published_ = false;
    if (publishes_writes_) {
        guard.unlock();
        Publish();
    }
}

void RadosFileHandle::Resize(uint64_t size) {
    RequireWriting();
    std::lock_guard<std::mutex> guard(mutex_);
    written_.resize(size);
    published_ = false;
}

void RadosFileHandle::Publish() {
    RequireWriting();
    std::lock_guard<std::mutex> guard(mutex_);
    if (published_) {
        return;
    }
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t size = written_.size();
    const uint64_t version = pool_->Write(
        object_, written_.data(), size, must_create_,
        {{FOOTER_ATTRIBUTE, FooterAttributeOf(written_.data(), size)},
         {STATISTICS_ATTRIBUTE, EncodeStatistics(StatisticsOf(written_.data(), size), size, now)}},
        now);
    if (outputs_) {
        outputs_->AddPublished(path, pool_, object_, version);
    }
    published_ = true;
    must_create_ = false; // further calls replace the object that this one has created
}

void RadosFileHandle::Discard() {
    std::lock_guard<std::mutex> guard(mutex_);
    written_ = {};
    pool_.reset();
}

ObjectStatus RadosFileHandle::Status() const {
    if (!writing_) {
        return status_;
    }
    std::lock_guard<std::mutex> guard(mutex_);
    ObjectStatus status;
    status.size = written_.size();
    return status;
}

} // namespace rawduck_ceph
