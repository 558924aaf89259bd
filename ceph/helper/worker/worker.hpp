//! A worker process: DuckDB behind a sandbox.
#pragma once

#include "ceph/helper/worker/query_runner.hpp"

namespace rawduck_ceph {

struct WorkerLimits {
    RunnerLimits runner;
    //! Private memory beyond DuckDB's buffers: what DuckDB does not count, and three copies of a reply.
    uint64_t other_memory_bytes = 256ull << 20;
    //! A worker that has more private memory than this after a job, beyond that of its start, is replaced.
    uint64_t keep_memory_bytes = 128ull << 20;
};

//! Starts DuckDB, gives up what it does not need any more, and runs jobs from `socket` until its other end
//! is closed. Returns then. Throws std::runtime_error when the sandbox cannot be entered.
void RunWorker(int socket, const WorkerLimits &limits);

} // namespace rawduck_ceph
