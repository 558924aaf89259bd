//! What DuckDB's own checksums say of the bytes of a database and of its logs: each block has one, and so has each entry of a log.
#pragma once

#include "common/interrupted.hpp"
#include "io/storage_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace rawduck {

struct Contents {
    static constexpr size_t PROBLEMS_MAX = 20;
    uint64_t checked = 0;              //!< blocks, or entries, whose checksums hold
    uint64_t zeros = 0;                //!< blocks in use that have only zeros
    uint64_t block_bytes = 0;          //!< 0: of a log
    uint64_t problem_count = 0;        //!< also of those that are not among `problems`
    std::vector<std::string> problems; //!< the first ones
    std::string doubt;                 //!< what may be damage, and may not; empty otherwise
    std::string note;                  //!< why nothing, or not all, was checked; empty otherwise

    void AddProblem(std::string problem);
};

//! Reads the headers, the free list, and all blocks that are in use as of the newest header. Nobody may write to the file meanwhile.
//! What cannot be read is a problem like others. Throws Error INTERRUPTED.
Contents CheckDatabaseContents(StorageFile &file, const std::string &name, const Interrupted &interrupted);
//! The same for a write-ahead log. An entry that ends behind the log was never acknowledged, unless its length is damaged.
Contents CheckLogContents(StorageFile &file, const std::string &name, const Interrupted &interrupted);

} // namespace rawduck
