#include "volume/mount/in_use.hpp"

#include "common/error.hpp"

namespace rawduck {

void ThrowInUse(const Target &target, const char *done) {
    throw Error(ErrorCode::LOCKED, target.name + ": it cannot be " + done +
                                       " while something on it is open in this process; DETACH every "
                                       "database on it (and move temp_directory elsewhere) first");
}

} // namespace rawduck
