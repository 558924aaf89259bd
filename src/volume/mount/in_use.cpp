#include "volume/mount/in_use.hpp"

#include "common/error.hpp"
#include "target/lock/reader_lock.hpp"

namespace rawduck {

void ThrowInUse(const Target &target, const char *done) {
    throw Error(ErrorCode::LOCKED, target.name + ": it cannot be " + done +
                                       " while something on it is open in this process; DETACH every "
                                       "database on it (and move temp_directory elsewhere) first");
}

void RequireNoReaders(const Target &target, const char *done) {
    if (HasNode(target.kind) && ReaderBytes(target).AnyLocked()) {
        throw Error(ErrorCode::LOCKED,
                    target.name + ": it cannot be " + done +
                        " while somebody reads a database on it as \"@latest\"; DETACH it there, "
                        "or end that process, first");
    }
}

} // namespace rawduck
