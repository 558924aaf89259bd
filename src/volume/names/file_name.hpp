//! What names mean: which are valid, and what DuckDB says with them.
#pragma once

#include "volume/format/file_kind.hpp"

#include <cstddef>
#include <string>

namespace rawduck {

constexpr size_t NAME_BYTES_MAX = 255;

//! Whether a name is that of a log: ".wal", ".wal.checkpoint" or ".wal.recovery". Then it is written where
//! logs are and may use space that is kept for them; its bytes are as durable as any. Otherwise `otherwise`.
FileKind KindFromName(const std::string &name, FileKind otherwise);

//! What the name says that a file is for when DuckDB spills: it calls its temporary files
//! duckdb_temp_<process>_<instance>_ and then storage_<size>-<number>.tmp, block-<number>.block, or owner. A
//! name says nothing of how the file was opened: anybody may choose it.
enum class TemporaryName {
    NONE,   //!< of no temporary file of this process
    BLOCKS, //!< many blocks of one size
    BLOCK,  //!< one long block
    OWNER   //!< marks the instance as running; always empty
};
TemporaryName TemporaryNameOf(const std::string &name);

//! A valid name is 1 to 255 bytes of '/'-separated components, none of them empty, "." or "..", without NUL.
//! Throws Error INVALID naming what is wrong. `target`: the volume's, for the message where there is no name.
void CheckFileName(const std::string &target, const std::string &name);

} // namespace rawduck
