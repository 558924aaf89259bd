#include "ceph/pushdown/decision/class_trial.hpp"

#include "ceph/rados/connection/interruptible.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/main/database.hpp"

namespace rawduck_ceph {

namespace {

//! Interval of checks for cancellation while waiting for a reply.
constexpr uint32_t CANCEL_CHECK_MS = 100;

//! It needs the footer only.
Request NumberOfRows() {
    Request request;
    request.duckdb_version = duckdb::DuckDB::LibraryVersion();
    request.outputs = {"count(*)"};
    request.aggregate = true;
    return request;
}

} // namespace

void TryClass(const CallTarget &object, const std::shared_ptr<ObjectPins> &pins) {
    ClassAvailability &classes = object.feedback->classes;
    if (classes.IsConfirmed() || !classes.UnavailableReason().empty() || !object.pool->IsErasureCoded()) {
        return;
    }
    ObjectCalls calls({object}, NumberOfRows(), CallLimits(), pins);
    size_t target = 0;
    CallAnswer answer;
    calls.ClaimNext(target);
    while (!calls.WaitFor(target, CANCEL_CHECK_MS, answer)) {
        if (InterruptScope::IsInterrupted()) {
            calls.Cancel();
            throw duckdb::InterruptException();
        }
    }
    if (answer.answered) {
        classes.SetAvailable();
    } else if (answer.no_class) {
        classes.SetUnavailable(answer.why);
    }
}

} // namespace rawduck_ceph
