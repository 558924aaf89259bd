//! The one place where errors of the DuckDB-free layers become DuckDB's exceptions, message intact.
#pragma once

#include "common/error.hpp"

namespace rawduck {

[[noreturn]] void ThrowAsDuckDBException(const Error &error);

//! For Sync: an IO or POISONED error there means that data which DuckDB
//! believes written may be gone. It is DuckDB's FatalException, as in its own
//! file system, so that nothing is retried and the database is invalidated.
[[noreturn]] void ThrowAsSyncFailure(const Error &error);

//! Runs calls into the lower layers and translates what they throw.
template <class CALL> auto Translated(CALL &&call) -> decltype(call()) {
    try {
        return call();
    } catch (const Error &error) {
        ThrowAsDuckDBException(error);
    }
}

} // namespace rawduck
