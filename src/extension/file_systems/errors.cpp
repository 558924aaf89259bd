#include "extension/file_systems/errors.hpp"

#include "duckdb/common/exception.hpp"

namespace rawduck {

void ThrowAsDuckDBException(const Error &error) {
    const std::string message = error.what();
    switch (error.Code()) {
    case ErrorCode::PERMISSION:
        throw duckdb::PermissionException(message);
    case ErrorCode::INVALID:
        throw duckdb::InvalidInputException(message);
    case ErrorCode::UNSUPPORTED:
        throw duckdb::NotImplementedException(message);
    case ErrorCode::INTERRUPTED:
        throw duckdb::InterruptException(message);
    case ErrorCode::IO:
    case ErrorCode::NOT_FOUND:
    case ErrorCode::EXISTS:
    case ErrorCode::NO_SPACE:
    case ErrorCode::LOCKED:
    case ErrorCode::CORRUPT:
    case ErrorCode::READ_ONLY:
    case ErrorCode::POISONED:
    case ErrorCode::DESCRIPTORS:
        break;
    }
    throw duckdb::IOException(message);
}

void ThrowAsSyncFailure(const Error &error) {
    if (error.Code() == ErrorCode::IO || error.Code() == ErrorCode::POISONED) {
        throw duckdb::FatalException(std::string(error.what()));
    }
    ThrowAsDuckDBException(error);
}

} // namespace rawduck
