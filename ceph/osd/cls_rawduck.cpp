//! The object class, loaded by the OSD as libcls_rawduck.so. Methods, both read-only:
//!   version   returns the versions of the protocol and of DuckDB as text
//!   query     takes a request (ceph/protocol/messages.hpp), returns a reply
//! Errors are reported in the reply; a negative return code means that there is no reply. An exception that
//! left a method would end the OSD.
#include "ceph/osd/query_runner.hpp"
#include "ceph/parquet/footer_checksum.hpp"

#include <rados/objclass.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>

CLS_VER(1, 0)
CLS_NAME(rawduck)

namespace rawduck_ceph {
namespace {

class ClsObject final : public ObjectSource {
  public:
    ClsObject(cls_method_context_t context, uint64_t size) : context_(context), size_(size) {}

    uint64_t Size() const override { return size_; }

    void Read(uint64_t offset, size_t length, char *buffer) override {
        ceph::bufferlist bytes;
        const int got = cls_cxx_read(context_, static_cast<int>(offset), static_cast<int>(length), &bytes);
        if (got == -EOPNOTSUPP) {
            throw CannotReadHere(
                "object classes cannot read in this pool (they cannot in erasure-coded ones)");
        }
        if (got < 0 || static_cast<size_t>(got) != length || bytes.length() != length) {
            throw std::runtime_error("reading " + std::to_string(length) + " bytes at " +
                                     std::to_string(offset) + " of the object gave " + std::to_string(got));
        }
        bytes.begin().copy(static_cast<unsigned>(length), buffer);
    }

    bool RecordedFooterCrc(uint32_t &crc) override {
        ceph::bufferlist bytes;
        return cls_cxx_getxattr(context_, FOOTER_ATTRIBUTE, &bytes) > 0 &&
               ReadFooterAttribute(bytes.to_str(), size_, crc);
    }

  private:
    cls_method_context_t context_;
    uint64_t size_;
};

uint64_t FromEnvironment(const char *name, uint64_t default_value) {
    const char *text = std::getenv(name);
    const uint64_t value = text ? std::strtoull(text, nullptr, 10) : 0;
    return value > 0 ? value : default_value;
}

//! Created by the first request, never destroyed: the OSD ends without unloading its classes.
QueryRunner &ProcessRunner() {
    static QueryRunner *const runner = [] {
        RunnerLimits limits;
        limits.memory_bytes = FromEnvironment("RAWDUCK_CLASS_MEMORY_MB", limits.memory_bytes >> 20) << 20;
        limits.running_max =
            static_cast<uint32_t>(FromEnvironment("RAWDUCK_CLASS_RUNNING", limits.running_max));
        return new QueryRunner(limits);
    }();
    return *runner;
}

//! Turns exceptions into return codes.
template <class BODY> int Guard(const char *method, BODY body) {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    } catch (const std::exception &error) {
        CLS_ERR("rawduck.%s: %s", method, error.what());
        return -EIO;
    } catch (...) {
        CLS_ERR("rawduck.%s: an unknown exception", method);
        return -EIO;
    }
}

int Version(cls_method_context_t, ceph::bufferlist *, ceph::bufferlist *out) {
    return Guard("version", [&] {
        out->append(QueryRunner::Version());
        return 0;
    });
}

int Query(cls_method_context_t context, ceph::bufferlist *in, ceph::bufferlist *out) {
    return Guard("query", [&] {
        uint64_t size = 0;
        time_t modified = 0;
        if (const int result = cls_cxx_stat(context, &size, &modified); result < 0) {
            return result;
        }
        if (in->length() > REQUEST_BYTES_MAX + sizeof(Frame)) {
            return -E2BIG;
        }
        ClsObject object(context, size);
        out->append(EncodeReply(ProcessRunner().Run(in->c_str(), in->length(), object)));
        return 0;
    });
}

} // namespace
} // namespace rawduck_ceph

CLS_INIT(rawduck) {
    cls_handle_t handle;
    cls_method_handle_t method;
    cls_register("rawduck", &handle);
    cls_register_cxx_method(handle, "version", CLS_METHOD_RD, rawduck_ceph::Version, &method);
    cls_register_cxx_method(handle, "query", CLS_METHOD_RD, rawduck_ceph::Query, &method);
}
