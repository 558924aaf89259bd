//! What a file is for, as metadata records it.
#pragma once

#include "io/request/placement.hpp"

#include <cstdint>

namespace rawduck {

enum class FileKind : uint8_t {
    DATABASE = 1,
    WAL = 2,
    TEMP = 3,  //!< never in the durable metadata: gone at the next mount
    OTHER = 4, //!< anything else: Parquet, CSV, ...
    DIRECTORY = 5
};
const char *FileKindName(FileKind kind);
//! Whether durable metadata can say so.
bool IsStored(FileKind kind);

PlacementClass PlacementOf(FileKind kind);

} // namespace rawduck
