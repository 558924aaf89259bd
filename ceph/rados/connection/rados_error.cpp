#include "ceph/rados/connection/rados_error.hpp"

#include <cerrno>

namespace rawduck_ceph {
namespace {

struct ErrorAdvice {
    ErrorCode code;
    const char *advice;
};

ErrorAdvice AdviceFor(int error_number) {
    switch (error_number) {
    case EPERM:
    case EACCES:
        return {
            ErrorCode::PERMISSION,
            "the user's capabilities do not allow it; look at them with `ceph auth get client.<user>` and "
            "name another user in the secret (CREATE SECRET (TYPE rados, USER '...', KEYRING '...'))"};
    case ENOENT:
        return {ErrorCode::NOT_FOUND,
                "there is no such object; `rados -p <pool> ls` lists those that are there"};
    case ETIMEDOUT:
        return {
            ErrorCode::IO,
            "the OSDs that hold it did not answer in time; `ceph -s` and `ceph osd tree` show what is down "
            "or full, and rados_timeout is how many seconds to wait"};
    case ERANGE:
    case EOVERFLOW:
        return {ErrorCode::IO, "the object was replaced since the query has opened it; run the query again"};
    case ENODATA:
        return {ErrorCode::IO, "the object ends before that; was it written whole?"};
    case ENOSPC:
    case EDQUOT:
        return {ErrorCode::NO_SPACE, "the pool or its quota is full; `ceph df` shows by what"};
    case EFBIG:
        return {ErrorCode::NO_SPACE, "that is more than the OSD takes in one write (osd_max_write_size)"};
    case EEXIST:
        return {ErrorCode::EXISTS, "the object is there already"};
    case EIO:
        return {ErrorCode::IO,
                "the OSD cannot read it from its disk; `ceph health detail` says what is damaged, "
                "`ceph pg repair` restores it from a copy"};
    case EOPNOTSUPP:
        return {ErrorCode::UNSUPPORTED, "the pool or the OSD does not support it"};
    case ECANCELED:
        return {ErrorCode::INTERRUPTED, "the query was interrupted"};
    case ESHUTDOWN:
        return {ErrorCode::IO,
                "the cluster has blocked this client (`ceph osd blocklist ls`); open a new connection"};
    default:
        return {ErrorCode::IO, "`ceph -s` shows the state of the cluster"};
    }
}

} // namespace

void ThrowRadosError(int code, const std::string &target, const std::string &action) {
    const int error_number = -code;
    const ErrorAdvice error = AdviceFor(error_number);
    // Ceph has chosen these numbers for an asserted version; their texts say something else.
    const bool other_version = error_number == ERANGE || error_number == EOVERFLOW;
    const std::string what = other_version ? "" : ErrnoText(error_number) + "; ";
    throw Error(error.code, target + ": cannot " + action + ": " + what + error.advice);
}

} // namespace rawduck_ceph
