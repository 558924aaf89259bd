#include "ceph/rados/pool/rados_pool.hpp"

#include "ceph/rados/connection/rados_error.hpp"
#include "ceph/rados/connection/rados_handle.hpp"
#include "ceph/rados/connection/rados_path.hpp"
#include "ceph/rados/pool/object_listing.hpp"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <rados/librados.hpp>

namespace rawduck_ceph {
namespace {

//! The OSD executes the pieces of one object one after another, but their transfers overlap.
constexpr uint64_t READ_PIECE_BYTES = 4 << 20;

struct ReleaseReadOp {
    void operator()(rados_read_op_t op) const { rados_release_read_op(op); }
};
using ReadOp = std::unique_ptr<void, ReleaseReadOp>;

struct ReleaseWriteOp {
    void operator()(rados_write_op_t op) const { rados_release_write_op(op); }
};
using WriteOp = std::unique_ptr<void, ReleaseWriteOp>;

//! An ioctx for one operation. librados tells the version of an object that was written by the ioctx, where
//! operations of other threads would replace it. Made without a request to the cluster.
class OperationIoctx {
  public:
    OperationIoctx(rados_t cluster, int64_t pool) : code_(rados_ioctx_create2(cluster, pool, &io_)) {}
    ~OperationIoctx() {
        if (code_ == 0) {
            rados_ioctx_destroy(io_);
        }
    }
    OperationIoctx(const OperationIoctx &) = delete;
    OperationIoctx &operator=(const OperationIoctx &) = delete;

    //! Of its creation: 0 or a negative errno.
    int Code() const { return code_; }
    rados_ioctx_t Get() const { return io_; }

  private:
    rados_ioctx_t io_ = nullptr;
    const int code_;
};

//! One read in flight. Acquires the limit before it is sent and releases it when librados calls back.
class PieceRead {
  public:
    PieceRead(InFlightLimit &limit, ReadObserver &observer, uint64_t length)
        : length(length), limit_(limit), observer_(observer), completion_(this, Finished) {}

    //! Returns a negative errno when the read was not started.
    int Start(rados_ioctx_t io, const std::string &object, uint64_t version, void *data, uint64_t offset) {
        ReadOp op(rados_create_read_op());
        rados_read_op_assert_version(op.get(), version);
        rados_read_op_read(op.get(), offset, length, static_cast<char *>(data), &bytes_read_, &code_);
        if (!limit_.Acquire()) {
            return -ECANCELED;
        }
        observer_.ReadStarted();
        const int code = rados_aio_read_op_operate(op.get(), io, completion_.Get(), object.c_str(), 0);
        if (code < 0) {
            observer_.ReadEnded(0);
            limit_.Release();
            return code;
        }
        completion_.SetStarted();
        return 0;
    }

    //! Returns a negative errno; -ENODATA when the object is too short.
    int Wait(rados_ioctx_t io) {
        const int code = completion_.Wait(io);
        return code < 0 ? code : bytes_read_ == length ? 0 : -ENODATA;
    }

    const uint64_t length;

  private:
    static void Finished(rados_completion_t, void *argument) {
        auto *self = static_cast<PieceRead *>(argument);
        self->observer_.ReadEnded(self->length);
        self->limit_.Release();
    }

    InFlightLimit &limit_;
    ReadObserver &observer_;
    size_t bytes_read_ = 0;
    int code_ = 0;
    RadosCompletion completion_; //!< last: its destructor waits while librados writes to the members above
};

//! Far more than an OSD works on at the same time; each of them is small.
constexpr size_t EXAMINATIONS_IN_FLIGHT_MAX = 64;

//! One request of Examine. In librados' C++ interface: the C one has no time of modification in nanoseconds.
class Examination {
  public:
    Examination(rados_ioctx_t io, size_t number, const std::string &object, const std::string &attribute)
        : number(number), attribute_(attribute),
          completion_(librados::Rados::aio_create_completion(this, Ended)) {
        librados::IoCtx::from_rados_ioctx_t(io, io_);
        librados::ObjectReadOperation op;
        op.stat2(&size_, &modified_, nullptr);
        op.getxattrs(&attributes_, nullptr);
        start_code_ = io_.aio_operate(object, completion_, &op, nullptr);
    }
    ~Examination() {
        if (start_code_ == 0) {
            end_.Wait(); // librados writes to the members
        }
        completion_->release();
    }
    Examination(const Examination &) = delete;
    Examination &operator=(const Examination &) = delete;

    //! Returns a negative errno, also when it was not started.
    int Wait(ExaminedObject &examined) {
        if (start_code_ < 0) {
            return start_code_;
        }
        end_.Wait([&] { io_.aio_cancel(completion_); });
        const int code = completion_->get_return_value();
        if (code < 0) {
            return code;
        }
        examined.status.size = size_;
        examined.status.modified_s = modified_.tv_sec;
        examined.status.modified_ns = modified_.tv_nsec;
        examined.status.version = completion_->get_version64();
        auto found = attributes_.find(attribute_);
        examined.attribute = found == attributes_.end() ? "" : found->second.to_str();
        return 0;
    }

    const size_t number;

  private:
    static void Ended(librados::completion_t, void *self) { static_cast<Examination *>(self)->end_.Set(); }

    const std::string &attribute_;
    librados::IoCtx io_;
    OperationEnd end_;
    librados::AioCompletion *const completion_;
    int start_code_ = 0;
    uint64_t size_ = 0;
    timespec modified_ = {};
    std::map<std::string, ceph::bufferlist> attributes_;
};

} // namespace

ExecCall::~ExecCall() {
    if (completion_) {
        rados_aio_release(completion_);
    }
}

void ExecCall::Cancel() {
    rados_aio_cancel(io_, completion_);
}

void ExecCall::Finished(rados_completion_t completion, void *self) {
    const std::unique_ptr<std::shared_ptr<ExecCall>> owner(static_cast<std::shared_ptr<ExecCall> *>(self));
    ExecCall &call = **owner;
    ExecReply reply;
    const int code = rados_aio_get_return_value(completion);
    reply.code = code < 0 ? code : call.method_code_;
    reply.data.reset(call.data_);
    reply.length = call.data_ ? call.length_ : 0;
    reply.version = rados_aio_get_version(completion);
    call.stats_->Count(RadosOperation::EXEC, reply.code, reply.length);
    call.callback_(std::move(reply));
}

RadosPool::RadosPool(std::shared_ptr<RadosHandle> handle, std::string name, int64_t id,
                     std::string cluster_id, std::shared_ptr<ReadObserver> observer)
    : handle_(std::move(handle)), name_(std::move(name)), id_(id), cluster_id_(std::move(cluster_id)),
      observer_(std::move(observer)), stats_(RadosStatsFor(cluster_id_, name_)) {
    const int code = rados_ioctx_create2(handle_->Get(), id, &io_);
    if (code < 0) {
        ThrowRadosError(code, RADOS_SCHEME + name_, "open the pool");
    }
}

RadosPool::~RadosPool() {
    rados_ioctx_destroy(io_);
}

const std::optional<OsdCounts> &RadosPool::Osds() const {
    return handle_->Osds();
}

bool RadosPool::IsErasureCoded() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!is_erasure_coded_) {
        // Only erasure-coded pools have a profile.
        is_erasure_coded_ = handle_
                                ->AskMonitors(R"({"prefix": "osd pool get", "pool": ")" + name_ +
                                              R"(", "var": "erasure_code_profile"})")
                                .has_value();
    }
    return *is_erasure_coded_;
}

std::string RadosPool::KeyOf(const std::string &object) const {
    return cluster_id_ + "/" + std::to_string(id_) + "/" + object;
}

std::string RadosPool::PathOf(const std::string &object) const {
    return RadosPath{name_, object}.ToString();
}

void RadosPool::RequirePoolExists() const {
    char name[256];
    if (rados_pool_reverse_lookup(handle_->Get(), id_, name, sizeof name) == -ENOENT) {
        throw Error(ErrorCode::NOT_FOUND,
                    RADOS_SCHEME + name_ + ": the pool was removed since it was opened");
    }
}

bool RadosPool::TryStat(const std::string &object, ObjectStatus &status) {
    handle_->RequireSameProcess(PathOf(object));
    time_t modified = 0;
    int stat_code = 0;
    ReadOp op(rados_create_read_op());
    rados_read_op_stat(op.get(), &status.size, &modified, &stat_code);
    // Asynchronous, because only a completion tells the version of the object that was looked at.
    RadosCompletion completion(nullptr, nullptr);
    int code = rados_aio_read_op_operate(op.get(), io_, completion.Get(), object.c_str(), 0);
    if (code == 0) {
        completion.SetStarted();
        code = completion.Wait(io_);
    }
    stats_->Count(RadosOperation::STAT, code == -ENOENT ? 0 : code, 0);
    if (code == -ENOENT) {
        RequirePoolExists();
    } else if (code < 0) {
        ThrowRadosError(code, PathOf(object), "look at the object");
    }
    status.modified_s = modified;
    status.version = code == 0 ? completion.Version() : 0;
    return code == 0;
}

void RadosPool::Read(const std::string &object, uint64_t version, void *data, uint64_t length,
                     uint64_t offset) {
    handle_->RequireSameProcess(PathOf(object));
    std::vector<std::unique_ptr<PieceRead>> pieces;
    int failure = 0;
    for (uint64_t done = 0; done < length && failure == 0;) {
        const uint64_t piece = std::min(READ_PIECE_BYTES, length - done);
        pieces.push_back(std::make_unique<PieceRead>(handle_->reads, *observer_, piece));
        failure = pieces.back()->Start(io_, object, version, static_cast<char *>(data) + done, offset + done);
        if (failure < 0) {
            stats_->Count(RadosOperation::READ, failure, 0);
            pieces.pop_back();
        }
        done += piece;
    }
    for (auto &piece : pieces) {
        const int code = piece->Wait(io_);
        stats_->Count(RadosOperation::READ, code, piece->length);
        failure = failure == 0 ? code : failure;
    }
    if (failure < 0) {
        ThrowRadosError(failure, PathOf(object),
                        "read " + std::to_string(length) + " bytes at " + std::to_string(offset));
    }
}

uint64_t RadosPool::Write(const std::string &object, const void *data, uint64_t length, bool must_create,
                          const std::map<std::string, std::string> &attributes, const timespec &modified) {
    handle_->RequireSameProcess(PathOf(object));
    if (length > OBJECT_BYTES_MAX) {
        ThrowRadosError(-EFBIG, PathOf(object), "write " + std::to_string(length) + " bytes");
    }
    WriteOp op(rados_create_write_op());
    if (must_create) {
        rados_write_op_create(op.get(), LIBRADOS_CREATE_EXCLUSIVE, nullptr);
    }
    rados_write_op_write_full(op.get(), static_cast<const char *>(data), length);
    for (const auto &[name, value] : attributes) {
        rados_write_op_setxattr(op.get(), name.c_str(), value.data(), value.size());
    }
    timespec time = modified;
    const OperationIoctx io(handle_->Get(), id_);
    const int code =
        io.Code() < 0 ? io.Code() : rados_write_op_operate2(op.get(), io.Get(), object.c_str(), &time, 0);
    stats_->Count(RadosOperation::WRITE, code, length);
    if (code < 0) {
        RequirePoolExists();
        ThrowRadosError(code, PathOf(object), "write " + std::to_string(length) + " bytes");
    }
    return rados_get_last_version(io.Get());
}

std::vector<ExaminedObject> RadosPool::Examine(const std::vector<std::string> &objects,
                                               const std::string &attribute) {
    handle_->RequireSameProcess(RADOS_SCHEME + name_);
    std::vector<ExaminedObject> examined(objects.size());
    std::deque<std::unique_ptr<Examination>> in_flight;
    auto finish_first = [&] {
        const size_t number = in_flight.front()->number;
        const int code = in_flight.front()->Wait(examined[number]);
        in_flight.pop_front();
        stats_->Count(RadosOperation::STAT, code == -ENOENT ? 0 : code, 0);
        if (code < 0 && code != -ENOENT) {
            ThrowRadosError(code, PathOf(objects[number]), "look at the object");
        }
    };
    for (size_t number = 0; number < objects.size(); number++) {
        if (in_flight.size() == EXAMINATIONS_IN_FLIGHT_MAX) {
            finish_first();
        }
        in_flight.push_back(std::make_unique<Examination>(io_, number, objects[number], attribute));
    }
    while (!in_flight.empty()) {
        finish_first();
    }
    return examined;
}

bool RadosPool::Remove(const std::string &object) {
    handle_->RequireSameProcess(PathOf(object));
    const int code = rados_remove(io_, object.c_str());
    stats_->Count(RadosOperation::REMOVE, code == -ENOENT ? 0 : code, 0);
    if (code < 0 && code != -ENOENT) {
        ThrowRadosError(code, PathOf(object), "remove the object");
    }
    return code == 0;
}

bool RadosPool::RemoveVersion(const std::string &object, uint64_t version) {
    handle_->RequireSameProcess(PathOf(object));
    WriteOp op(rados_create_write_op());
    rados_write_op_assert_version(op.get(), version);
    rados_write_op_remove(op.get());
    const int code = rados_write_op_operate2(op.get(), io_, object.c_str(), nullptr, 0);
    // Of an object that is not there, the version is too low.
    const bool is_other = code == -ENOENT || code == -ERANGE || code == -EOVERFLOW;
    stats_->Count(RadosOperation::REMOVE, is_other ? 0 : code, 0);
    if (code < 0 && !is_other) {
        ThrowRadosError(code, PathOf(object), "remove the object");
    }
    return code == 0;
}

std::vector<std::string> RadosPool::List(const std::string &prefix, size_t limit) {
    handle_->RequireSameProcess(RADOS_SCHEME + name_);
    std::vector<std::string> names;
    const int code = ListObjects(shared_from_this(), io_, prefix, limit, names);
    stats_->Count(RadosOperation::LIST, code, 0);
    if (code == -ENOENT || names.empty()) {
        RequirePoolExists();
    }
    if (code < 0) {
        ThrowRadosError(code, RADOS_SCHEME + name_, "list its objects");
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::shared_ptr<ExecCall> RadosPool::Exec(const std::string &object, uint64_t version,
                                          const std::string &class_name, const std::string &method,
                                          const std::string &input, ExecCallback callback) {
    handle_->RequireSameProcess(PathOf(object));
    auto call = std::make_shared<ExecCall>(io_, stats_, std::move(callback));
    ReadOp op(rados_create_read_op());
    if (version != 0) {
        rados_read_op_assert_version(op.get(), version);
    }
    rados_read_op_exec(op.get(), class_name.c_str(), method.c_str(), input.data(), input.size(), &call->data_,
                       &call->length_, &call->method_code_);
    auto owner = std::make_unique<std::shared_ptr<ExecCall>>(call);
    int code = rados_aio_create_completion2(owner.get(), ExecCall::Finished, &call->completion_);
    if (code == 0) {
        code = rados_aio_read_op_operate(op.get(), io_, call->completion_, object.c_str(), 0);
        if (code == 0) {
            owner.release(); // Finished deletes it
            return call;
        }
    }
    stats_->Count(RadosOperation::EXEC, code, 0);
    ThrowRadosError(code, PathOf(object), "call " + class_name + "." + method);
}

} // namespace rawduck_ceph
