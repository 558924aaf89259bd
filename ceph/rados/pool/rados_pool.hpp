//! Operations on the objects of one pool.
#pragma once

#include "ceph/rados/connection/osd_counts.hpp"
#include "ceph/rados/pool/object_status.hpp"
#include "ceph/rados/pool/rados_stats.hpp"
#include "ceph/rados/pool/read_observer.hpp"

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <rados/librados.h>
#include <string>
#include <vector>

namespace rawduck_ceph {

class RadosHandle;

//! The reply of a class method.
struct ExecReply {
    struct FreeBuffer {
        void operator()(char *buffer) const { rados_buffer_free(buffer); }
    };

    int code = 0; //!< of the method; a negative errno when it or its delivery failed
    std::unique_ptr<char, FreeBuffer> data;
    size_t length = 0;    //!< of data, in bytes
    uint64_t version = 0; //!< of the object that the method read
};

struct ExaminedObject {
    ObjectStatus status;
    std::string attribute; //!< empty where the object has none
};

//! Called once, on a thread of librados. It must return soon, must not throw, and must not call the pool.
using ExecCallback = std::function<void(ExecReply)>;

//! A class method in flight, or one that has ended. Thread-safe.
class ExecCall {
  public:
    ExecCall(rados_ioctx_t io, std::shared_ptr<RadosStats> stats, ExecCallback callback)
        : io_(io), stats_(std::move(stats)), callback_(std::move(callback)) {}
    ~ExecCall();
    ExecCall(const ExecCall &) = delete;
    ExecCall &operator=(const ExecCall &) = delete;

    //! Makes it end soon with -ECANCELED, unless it has ended. The OSD may go on with it.
    void Cancel();

  private:
    friend class RadosPool;
    static void Finished(rados_completion_t completion, void *self);

    const rados_ioctx_t io_;
    const std::shared_ptr<RadosStats> stats_;
    const ExecCallback callback_;
    rados_completion_t completion_ = nullptr;
    char *data_ = nullptr;
    size_t length_ = 0;
    int method_code_ = 0;
};

//! Thread-safe. All functions throw Error, which names the object. No function waits longer than the connection's
//! timeout. Functions that look, read or list end within an InterruptScope when it is interrupted (INTERRUPTED).
class RadosPool : public std::enable_shared_from_this<RadosPool> {
  public:
    //! An object is written in one operation, which is atomic. By default Ceph accepts up to 90
    //! MB in one (osd_max_write_size).
    static constexpr uint64_t OBJECT_BYTES_MAX = 80 << 20;

    RadosPool(std::shared_ptr<RadosHandle> handle, std::string name, int64_t id, std::string cluster_id,
              std::shared_ptr<ReadObserver> observer);
    ~RadosPool();
    RadosPool(const RadosPool &) = delete;
    RadosPool &operator=(const RadosPool &) = delete;

    const std::string &Name() const { return name_; }
    int64_t Id() const { return id_; }
    //! The UUID of the cluster.
    const std::string &ClusterId() const { return cluster_id_; }
    //! Of an object, for maps: unique among all clusters and pools of the process.
    std::string KeyOf(const std::string &object) const;
    //! Of the cluster; nothing where the monitors did not tell.
    const std::optional<OsdCounts> &Osds() const;

    //! Asks the monitors at the first call. False also where they do not tell.
    bool IsErasureCoded();

    //! False when the object does not exist.
    bool TryStat(const std::string &object, ObjectStatus &status);

    //! Reads exactly `length` bytes at `offset` of this version of the object. Large ranges are split into
    //! pieces that are in flight together. Throws IO when the object has another version.
    void Read(const std::string &object, uint64_t version, void *data, uint64_t length, uint64_t offset);

    //! Replaces or creates the object, and returns its version. It is durable on return. Atomic: readers see the
    //! old or the new object. `must_create`: throws EXISTS when it exists. At most OBJECT_BYTES_MAX. The same
    //! operation sets the extended attributes and the time of modification.
    uint64_t Write(const std::string &object, const void *data, uint64_t length, bool must_create,
                   const std::map<std::string, std::string> &attributes, const timespec &modified);

    //! What the objects are and the value of an extended attribute of each, without reading them: one small
    //! request per object, many in flight. An object that does not exist has version 0.
    std::vector<ExaminedObject> Examine(const std::vector<std::string> &objects,
                                        const std::string &attribute);

    //! False when it did not exist.
    bool Remove(const std::string &object);
    //! Removes only this version of the object. False when there is another one, or none.
    bool RemoveVersion(const std::string &object, uint64_t version);

    //! The names of all objects of the default namespace that begin with `prefix`, sorted; an arbitrary
    //! subset when there are more than `limit`. Lists the whole pool, because Ceph has no index of names.
    std::vector<std::string> List(const std::string &prefix, size_t limit = SIZE_MAX);

    //! Starts a method of an object class on the OSD that has the object. `version` 0: any; otherwise the
    //! reply is -ERANGE or -EOVERFLOW when the object has another version. The caller limits the calls in
    //! flight, and keeps the pool until the callback was called.
    std::shared_ptr<ExecCall> Exec(const std::string &object, uint64_t version, const std::string &class_name,
                                   const std::string &method, const std::string &input,
                                   ExecCallback callback);

  private:
    std::string PathOf(const std::string &object) const;
    //! Called after -ENOENT, which Ceph also returns when the pool was removed. Throws Error
    //! NOT_FOUND in this case.
    void RequirePoolExists() const;

    std::shared_ptr<RadosHandle> handle_;
    const std::string name_;
    const int64_t id_;
    const std::string cluster_id_;
    const std::shared_ptr<ReadObserver> observer_;
    rados_ioctx_t io_ = nullptr;
    std::mutex mutex_; //!< guards is_erasure_coded_; held while the monitors are asked
    std::optional<bool> is_erasure_coded_;
    std::shared_ptr<RadosStats> stats_; //!< the same for every connection to this pool
};

} // namespace rawduck_ceph
