#include "volume/spill/memory_files.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/resource.h>

namespace rawduck {

namespace {

//! What lies together in one file. DuckDB's blocks are this long or shorter.
constexpr uint64_t STRIPE_BYTES = 256 * KIB;

//! The kernel ends a process that writes behind this limit.
bool MayWriteUpTo(uint64_t end) {
    rlimit limit{};
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur);
}

} // namespace

MemoryFiles::MemoryFiles(size_t files) {
    files_.reserve(files);
    for (size_t i = 0; i < files; i++) {
        files_.emplace_back(memfd_create("rawduck-spill", MFD_CLOEXEC));
        if (!files_.back().IsOpen()) {
            throw std::bad_alloc();
        }
    }
}

// A child has the same files as its parent, which still needs them.
MemoryFiles::~MemoryFiles() {
    if (fork_generation_ != ForkGeneration()) {
        return;
    }
    for (const FileDescriptor &file : files_) {
        while (ftruncate(file.Get(), 0) != 0 && errno == EINTR) {
        }
    }
}

// The front of the range, as far as it lies in one file.
MemoryFiles::Piece MemoryFiles::PieceAt(uint64_t offset, uint64_t length) const {
    const uint64_t stripe = offset / STRIPE_BYTES, within = offset % STRIPE_BYTES;
    return {files_[stripe % files_.size()].Get(), stripe / files_.size() * STRIPE_BYTES + within,
            std::min(length, STRIPE_BYTES - within)};
}

bool MemoryFiles::Write(uint64_t offset, const char *data, uint64_t length) noexcept {
    while (length > 0) {
        const Piece piece = PieceAt(offset, length);
        if (!MayWriteUpTo(piece.offset + piece.length)) {
            return false;
        }
        const ssize_t written = pwrite(piece.fd, data, piece.length, static_cast<off_t>(piece.offset));
        if (written == 0 || (written < 0 && errno != EINTR)) {
            return false;
        }
        const auto bytes = static_cast<uint64_t>(std::max<ssize_t>(written, 0));
        offset += bytes;
        data += bytes;
        length -= bytes;
    }
    return true;
}

void MemoryFiles::Read(uint64_t offset, char *data, uint64_t length) const {
    while (length > 0) {
        const Piece piece = PieceAt(offset, length);
        const ssize_t read = pread(piece.fd, data, piece.length, static_cast<off_t>(piece.offset));
        if (read < 0 && errno != EINTR) {
            throw Error(ErrorCode::IO, "cannot read spilled bytes back from memory: " + ErrnoText(errno) +
                                           "; run the query again, and have the machine's memory tested");
        }
        RAWDUCK_INVARIANT(read != 0, "what is read from memory was written to it");
        const auto bytes = static_cast<uint64_t>(std::max<ssize_t>(read, 0));
        offset += bytes;
        data += bytes;
        length -= bytes;
    }
}

void MemoryFiles::Release(uint64_t offset, uint64_t length) noexcept {
    while (length > 0) {
        const Piece piece = PieceAt(offset, length);
        // What fails is written over when it is used again, and goes with the file.
        fallocate(piece.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(piece.offset),
                  static_cast<off_t>(piece.length));
        offset += piece.length;
        length -= piece.length;
    }
}

} // namespace rawduck
