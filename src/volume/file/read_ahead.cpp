#include "volume/file/read_ahead.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>

namespace rawduck {

ReadAhead::ReadAhead() : fork_generation_(ForkGeneration()) {}

ReadAhead::~ReadAhead() {
    if (fork_generation_ != ForkGeneration() && next_.valid()) {
        // The thread is the parent's, and its end would be waited for.
        static_cast<void>(new std::future<Window>(std::move(next_)));
    }
}

uint64_t ReadAhead::Read(File &file, char *data, uint64_t length, uint64_t offset) {
    // Databases have their blocks prefetched by DuckDB, spilled blocks by the spill buffer.
    const bool is_log_like = file.Kind() == FileKind::WAL || file.Kind() == FileKind::OTHER;
    const uint64_t size = file.Size();
    if (is_log_like && offset < size && fork_generation_ == ForkGeneration()) {
        const uint64_t piece = std::min(length, size - offset);
        std::lock_guard<std::mutex> guard(mutex_);
        const bool follows = offset == expected_ && piece <= PIECE_BYTES_MAX;
        expected_ = offset + piece;
        uint64_t done = Copy(file, data, piece, offset);
        if (done < piece && (follows || done > 0) && Advance(file, piece - done, offset + done)) {
            done += Copy(file, data + done, piece - done, offset + done);
        }
        if (done < piece ? !follows : expected_ == file.Size()) {
            DropLocked(); // here and there, or to its end: nothing more is wanted of what lies ahead
        }
        if (done == piece) {
            return piece;
        }
    }
    return file.Read(data, length, offset);
}

//! Copies what the window holds of the piece from its start on, as long as nothing has been written to the
//! file since the window was read.
uint64_t ReadAhead::Copy(const File &file, char *data, uint64_t length, uint64_t offset) const {
    if (offset < window_.start || offset >= window_.End() || file.ContentVersion() != window_.version) {
        return 0;
    }
    const uint64_t held = std::min(length, window_.End() - offset);
    memcpy(data, window_.bytes.Data() + (offset - window_.start), held);
    return held;
}

//! Makes the window begin at `offset`. False when it cannot:
//! bytes that nobody asked for must not fail a read.
bool ReadAhead::Advance(File &file, uint64_t length, uint64_t offset) {
    if (failed_ || (!window_.bytes.Empty() && window_.version != file.ContentVersion())) {
        DropLocked(); // somebody writes, perhaps often: it begins anew with the next piece
        return false;
    }
    const uint64_t wanted = std::max({WINDOW_BYTES_MIN, 2 * window_.bytes.Size(), 4 * length});
    try {
        if (next_.valid()) {
            Window next = next_.get();
            std::swap(window_, next);
            StartNext(file, std::move(next.bytes));
        } else {
            window_ = Fetch(file, std::move(window_.bytes), AlignDown(offset, PAGE_BYTES),
                            AlignUp(std::min(wanted, WINDOW_BYTES_MAX), PAGE_BYTES));
            if (wanted >= WINDOW_BYTES_MAX) {
                StartNext(file, AlignedBuffer());
            }
        }
        return true;
    } catch (const Error &) {
        failed_ = true;
    } catch (const std::bad_alloc &) {
        failed_ = true;
    }
    DropLocked();
    return false;
}

ReadAhead::Window ReadAhead::Fetch(File &file, AlignedBuffer memory, uint64_t start, uint64_t length) {
    Window window;
    window.version = file.ContentVersion();
    window.start = start;
    window.bytes = std::move(memory);
    window.bytes.Resize(0); // nothing to keep when it grows
    window.bytes.Resize(length);
    window.bytes.Resize(file.Read(window.bytes.Data(), length, start));
    return window;
}

//! Reads the window behind this one in a thread, while this one is copied from. Where no thread can be had,
//! it is read when it is wanted.
void ReadAhead::StartNext(File &file, AlignedBuffer memory) {
    const uint64_t start = window_.End();
    if (start >= file.Size() || !IsAligned(start, PAGE_BYTES)) {
        return;
    }
    try {
        next_ = std::async(std::launch::async, [&file, start, memory = std::move(memory)]() mutable {
            return Fetch(file, std::move(memory), start, WINDOW_BYTES_MAX);
        });
    } catch (const std::system_error &) {
        return;
    }
}

void ReadAhead::Drop() {
    if (fork_generation_ == ForkGeneration()) {
        std::lock_guard<std::mutex> guard(mutex_);
        DropLocked();
    }
}

void ReadAhead::DropLocked() {
    next_ = std::future<Window>(); // waits for its thread
    window_ = Window();
}

} // namespace rawduck
