//! What a worker process may still do once its DuckDB has started. Linux on x86-64 and 64-bit ARM.
#pragma once

#include "ceph/channel/memory_file.hpp"

#include <cstdint>

namespace rawduck_ceph {

//! Gives way to everything else on the host: nice value, and first to be ended when memory runs out. What
//! cannot be set is left as it is.
void GiveWay();

//! Gives up, for ever and before the first job: files, sockets, processes, threads, signals to others, new
//! executable memory, core dumps; writing more than `file_bytes_max` into a file in memory; and private
//! memory of more than `memory_bytes` beyond what is in use now. A forbidden system call fails with EPERM,
//! because libraries probe. Throws std::runtime_error when the kernel cannot enforce this.
void EnterSandbox(uint64_t memory_bytes, uint64_t file_bytes_max);

//! How much private memory the process has; also inside the sandbox, if it was made before.
class PrivateMemory {
  public:
    //! Throws std::runtime_error when /proc is not there.
    PrivateMemory();
    //! Bytes: what RLIMIT_DATA limits.
    uint64_t Bytes() const;

  private:
    OwnedFd statm_;
};

} // namespace rawduck_ceph
