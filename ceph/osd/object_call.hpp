//! One call of the object class: on the op thread, which does nothing but I/O. It asks the helper process
//! about the call, reads the bytes that the request's columns need, and hands them over.
#pragma once

#include "ceph/channel/call_key.hpp"
#include "ceph/osd/helper_client.hpp"
#include "ceph/osd/time_budget.hpp"
#include "ceph/parquet/object_source.hpp"

namespace rawduck_ceph {

//! An object whose operation is the present call.
class CalledObject : public ObjectSource {
  public:
    //! What Ceph records about the object: its pool, its name and its version above all. Throws
    //! std::runtime_error, also CannotReadHere.
    virtual std::string Info() = 0;
};

struct HandOverLimits {
    uint64_t object_bytes_max = 128ull << 20; //!< larger objects are not handed over
    //! Longer footers are not parsed on an op thread.
    uint32_t footer_bytes_max = 512 << 10;
    //! Reading stops after this time and goes on with the next call, so that other operations can run.
    uint32_t read_ms_max = 5;
};

//! What the OSD sends back: a reply without payload, or the helper's encoded one.
struct CallResult {
    Reply reply;
    OwnedFd encoded; //!< when valid, what is sent instead of `reply`
    uint64_t encoded_bytes = 0;
};

//! Answers an encoded request. Does not throw but std::bad_alloc: errors are the status of the reply. With
//! FETCH, what is not finished is BUSY.
CallResult AnswerCall(const char *request, size_t length, CalledObject &object, HelperClient &helper,
                      const CallKeys &keys, const HandOverLimits &limits, Allowance allowance);

//! The reply when the op thread has no time for calls.
Reply BusyThread();

//! "rawduck object class, protocol 3, DuckDB v2.0.0".
std::string ClassVersion();

} // namespace rawduck_ceph
