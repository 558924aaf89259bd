//! The last bytes of objects that were read lately. Whoever opens a Parquet file reads its footer first, and
//! the optimizer needs the same bytes a moment later.
#pragma once

#include "ceph/rados/pool/object_status.hpp"

#include <list>
#include <mutex>
#include <string>

namespace rawduck_ceph {

//! What is found may be out of date: the object may have been replaced since. Thread-safe.
class ObjectTails {
  public:
    //! Longer footers are read again. Shorter reads are of no use: a Parquet file ends with 8 bytes, the
    //! length of its footer and the magic.
    static constexpr uint64_t BYTES_MAX = 32 * 1024;
    static constexpr uint64_t BYTES_MIN = 8;
    static constexpr size_t OBJECTS_MAX = 64;

    //! To be called with every read of an object of the version in `status`. Keeps those of the object's end.
    void RecordRead(const std::string &object, const ObjectStatus &status, const void *data, uint64_t length,
                    uint64_t offset) {
        if (length < BYTES_MIN || length > BYTES_MAX || offset + length != status.size) {
            return;
        }
        Tail tail{object, status, std::string(static_cast<const char *>(data), length)};
        std::lock_guard<std::mutex> lock(mutex_);
        tails_.remove_if([&](const Tail &other) {
            return other.object == object &&
                   (other.status.version != status.version || other.bytes.size() <= length);
        });
        tails_.push_front(std::move(tail));
        if (tails_.size() > OBJECTS_MAX) {
            tails_.pop_back();
        }
    }

    //! The longest tail of the object. False: there is none.
    bool Find(const std::string &object, ObjectStatus &status, std::string &bytes) const {
        std::lock_guard<std::mutex> lock(mutex_);
        const Tail *longest = nullptr;
        for (const Tail &tail : tails_) {
            if (tail.object == object && (!longest || tail.bytes.size() > longest->bytes.size())) {
                longest = &tail;
            }
        }
        if (longest) {
            status = longest->status;
            bytes = longest->bytes;
        }
        return longest != nullptr;
    }

  private:
    struct Tail {
        std::string object;
        ObjectStatus status;
        std::string bytes;
    };

    mutable std::mutex mutex_; //!< guards tails_; no other lock is taken while it is held
    std::list<Tail> tails_;    //!< most recently read first
};

} // namespace rawduck_ceph
