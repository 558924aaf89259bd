//! The object class, loaded by the OSD as libcls_rawduck.so. Methods, both read-only:
//!   version   returns the versions of the protocol and of DuckDB as text
//!   query     takes a request (ceph/protocol/messages.hpp), returns a reply
//! It contains no DuckDB: the helper process runs the query. Errors are reported in the reply; a negative
//! return code means that there is no reply. An exception that left a method would end the OSD.
#include "ceph/osd/object_call.hpp"
#include "ceph/parquet/footer_checksum.hpp"
#include "common/scope_exit.hpp"

#include <rados/objclass.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

CLS_VER(1, 0)
CLS_NAME(rawduck)

namespace rawduck_ceph {
namespace {

class ClsObject final : public CalledObject {
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

    std::string Info() override {
        // Attributes of clients lie under "_" and their name; "_" itself is what Ceph records (object_info_t),
        // which every client may read with this empty name. It changes with each write.
        ceph::bufferlist bytes;
        const int got = cls_cxx_getxattr(context_, "", &bytes);
        if (got == -EOPNOTSUPP) {
            throw CannotReadHere("object classes cannot read in this pool");
        }
        if (got <= 0) {
            throw std::runtime_error("reading what Ceph records about the object gave " +
                                     std::to_string(got));
        }
        return bytes.to_str();
    }

  private:
    cls_method_context_t context_;
    uint64_t size_;
};

//! The helper lies beside the class. An OSD may load the class through a link.
std::string HelperProgram() {
    Dl_info self;
    char path[PATH_MAX];
    if (dladdr(reinterpret_cast<void *>(&HelperProgram), &self) == 0 || !realpath(self.dli_fname, path)) {
        return "rawduck-osd-helper";
    }
    const std::string file(path);
    return file.substr(0, file.rfind('/') + 1) + "rawduck-osd-helper";
}

std::string HelperDirectory() {
    const char *directory = std::getenv("RAWDUCK_HELPER_DIR");
    return directory && *directory ? directory : "/run/ceph/rawduck-" + std::to_string(geteuid());
}

//! Of the OSD's process. Made by the first request, never destroyed: the OSD ends without unloading its classes.
struct Process {
    HelperProcess helper{HelperProgram(), HelperDirectory()};
    HelperClient client{helper};
    CallKeys keys;
    HandOverLimits limits;

    static Process &Get() {
        static Process *const process = new Process;
        return *process;
    }
};

thread_local TimeBudget budget;

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
        out->append(ClassVersion());
        return 0;
    });
}

int AnswerInTime(cls_method_context_t context, ceph::bufferlist *in, ceph::bufferlist *out,
                 Allowance allowance) {
    uint64_t size = 0;
    time_t modified = 0;
    if (const int result = cls_cxx_stat(context, &size, &modified); result < 0) {
        return result;
    }
    ClsObject object(context, size);
    Process &process = Process::Get();
    const CallResult result = AnswerCall(in->c_str(), in->length(), object, process.client, process.keys,
                                         process.limits, allowance);
    if (!result.encoded) {
        out->append(EncodeReply(result.reply));
        return 0;
    }
    if (result.encoded_bytes > REPLY_BYTES_MAX + REQUEST_BYTES_MAX) {
        throw std::runtime_error("the helper process sent a reply that is longer than any");
    }
    ceph::bufferptr bytes(static_cast<unsigned>(result.encoded_bytes));
    ReadMemoryFile(result.encoded.Get(), bytes.c_str(), result.encoded_bytes);
    out->append(bytes);
    return 0;
}

int Query(cls_method_context_t context, ceph::bufferlist *in, ceph::bufferlist *out) {
    return Guard("query", [&] {
        if (in->length() > REQUEST_BYTES_MAX + sizeof(Frame)) {
            return -E2BIG;
        }
        const auto start = TimeBudget::Clock::now();
        const Allowance allowance = budget.Allowed(start);
        if (allowance == Allowance::NOTHING) {
            out->append(EncodeReply(BusyThread()));
            return 0;
        }
        const rawduck::ScopeExit spend([start] { budget.Spend(TimeBudget::Clock::now() - start); });
        return AnswerInTime(context, in, out, allowance);
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
