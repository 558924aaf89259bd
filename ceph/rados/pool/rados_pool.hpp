//! Operations on the objects of one pool.
#pragma once

#include "ceph/rados/pool/object_status.hpp"
#include "ceph/rados/pool/rados_stats.hpp"
#include "ceph/rados/pool/read_observer.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <rados/librados.h>
#include <string>
#include <vector>

namespace rawduck_ceph {

class RadosHandle;

//! What a class method has answered.
struct ExecReply {
    struct FreeBuffer {
        void operator()(char *buffer) const { rados_buffer_free(buffer); }
    };

    int code = 0; //!< what the method returned; negative errno when it or its delivery failed
    std::unique_ptr<char, FreeBuffer> data;
    size_t length = 0;    //!< of data, in bytes
    uint64_t version = 0; //!< of the object that the method saw
};

//! Called once, on a thread of librados: it must return
//! soon, must not throw, and must not call into the pool.
using ExecCallback = std::function<void(ExecReply)>;

//! Thread-safe. Everything throws Error, which names the
//! object; nothing waits longer than the connection's timeout.
class RadosPool {
  public:
    //! Ceph takes up to 90 MB in one write by default (osd_max_write_size), and one write is what makes an
    //! object appear whole or not at all.
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

    //! False when there is no such object.
    bool TryStat(const std::string &object, ObjectStatus &status);

    //! Exactly `length` bytes at `offset` of the object as it was at
    //! `version`. Large ranges are cut in pieces that are in flight together.
    //! Throws IO when the object has changed since, and never mixes versions.
    void Read(const std::string &object, uint64_t version, void *data, uint64_t length, uint64_t offset);

    //! Replaces the object, or makes it; it is durable on return. Atomic: readers see the old or the new one.
    //! `must_create`: throws EXISTS when it is there. At most OBJECT_BYTES_MAX. `attribute` becomes the
    //! extended attribute of this name in the same operation.
    void Write(const std::string &object, const void *data, uint64_t length, bool must_create,
               const char *attribute_name, const std::string &attribute);

    //! False when it was not there.
    bool Remove(const std::string &object);

    //! The names of all objects (of the default namespace) that begin with `prefix`, in order; some of them
    //! where there are more than `most`. Ceph has no index of names: this goes through the whole pool.
    std::vector<std::string> List(const std::string &prefix, size_t most = SIZE_MAX);

    //! Starts a method of an object class on the OSD that holds the object. `version` 0: whatever it is now;
    //! otherwise the reply has -ERANGE or -EOVERFLOW when the object has changed. How many are in flight is
    //! up to the caller. The pool must live until the callback was called.
    void Exec(const std::string &object, uint64_t version, const std::string &class_name,
              const std::string &method, const std::string &input, ExecCallback callback);

  private:
    std::string PathOf(const std::string &object) const;
    //! After an -ENOENT, which Ceph also returns when the pool itself is gone. Throws Error NOT_FOUND then.
    void RequireExistence() const;

    std::shared_ptr<RadosHandle> handle_;
    const std::string name_;
    const int64_t id_;
    const std::string cluster_id_;
    const std::shared_ptr<ReadObserver> observer_;
    rados_ioctx_t io_ = nullptr;
    std::shared_ptr<RadosStats> stats_; //!< the same for every connection to this pool
};

} // namespace rawduck_ceph
