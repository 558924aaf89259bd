//! Memory that is written and read like a file (memfd). The kernel fills its pages with what is written, where it
//! would first have to set the pages of a mapping to zero, one page fault each. It is not mapped, so nothing of it is
//! in the address space, and a child made by fork() copies nothing.
#pragma once

#include "common/process/fork_generation.hpp"
#include "common/units.hpp"
#include "target/system/file_descriptor.hpp"

#include <vector>

namespace rawduck {

//! Thread-safe. The caller orders writes and reads of the same range against each other. Several files, because the
//! kernel writes to one of them from one thread at a time.
class MemoryFiles {
  public:
    //! Throws std::bad_alloc where the system refuses them. Empty: they take no memory.
    explicit MemoryFiles(size_t files);
    //! Gives all of it back, which children made by fork() have open, too.
    ~MemoryFiles();
    MemoryFiles(const MemoryFiles &) = delete;
    MemoryFiles &operator=(const MemoryFiles &) = delete;

    //! False when the system has no memory for it, or does not let the process write files of that length
    //! (RLIMIT_FSIZE); the contents of the range are undefined then.
    bool Write(uint64_t offset, const char *data, uint64_t length) noexcept;
    //! What was written. Throws Error IO.
    void Read(uint64_t offset, char *data, uint64_t length) const;
    //! Gives the range back to the system, in whole pages. Reads of it return zeros.
    void Release(uint64_t offset, uint64_t length) noexcept;

  private:
    struct Piece {
        int fd;
        uint64_t offset; //!< in that file
        uint64_t length;
    };
    Piece PieceAt(uint64_t offset, uint64_t length) const;

    const uint64_t fork_generation_ = ForkGeneration();
    std::vector<FileDescriptor> files_;
};

} // namespace rawduck
