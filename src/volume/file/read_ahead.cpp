#include "volume/file/read_ahead.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"
#include "target/system/available_memory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

namespace rawduck {

namespace {

//! Less is not worth asking whether there is memory for it.
constexpr uint64_t ASKED_BYTES_MIN = 4 * MIB;

//! Of a log of that size. Who replays it needs memory for what is in it, too.
uint64_t KeptBytes(uint64_t size) {
    const uint64_t wanted = std::min(AlignUp(size, PAGE_BYTES), ReadAhead::KEPT_BYTES_MAX);
    if (wanted <= ASKED_BYTES_MIN) {
        return wanted;
    }
    try {
        const std::vector<MemoryLevel> levels = AvailableMemory().Read();
        uint64_t available = levels.empty() ? 0 : UINT64_MAX;
        for (const MemoryLevel &level : levels) {
            available = std::min(available, level.available_bytes);
        }
        return std::min(wanted, available / 8);
    } catch (const std::bad_alloc &) {
        return 0;
    }
}

} // namespace

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
        const bool begins = offset == 0 && file.Kind() == FileKind::WAL;
        if (begins) {
            BeginLog(size);
        }
        const bool follows = (offset == expected_ || begins) && piece <= PIECE_BYTES_MAX;
        expected_ = offset + piece;
        uint64_t done = Copy(file, data, piece, offset);
        if (done < piece && (follows || done > 0) && Advance(file, piece - done, offset + done)) {
            done += Copy(file, data + done, piece - done, offset + done);
        }
        if (done < piece && !follows) {
            DropLocked(); // here and there: nothing more is wanted of what lies ahead
        } else if (expected_ == file.Size()) {
            EndLocked();
        }
        if (done == piece) {
            return piece;
        }
    }
    return file.Read(data, length, offset);
}

//! At the start of a log: for the first time, or again.
void ReadAhead::BeginLog(uint64_t size) {
    EndLocked();
    keep_until_ = kept_.empty() ? KeptBytes(size) : 0;
}

//! What was kept comes before the window, and goes when it has been read again.
uint64_t ReadAhead::Copy(const File &file, char *data, uint64_t length, uint64_t offset) {
    uint64_t done = 0;
    while (keep_until_ == 0 && !kept_.empty() && done < length) {
        const Window &kept = kept_.front();
        const uint64_t copied = CopyFrom(kept, file, data + done, length - done, offset + done);
        done += copied;
        if (copied > 0 && offset + done < kept.End()) {
            return done;
        }
        copied > 0 ? kept_.pop_front() : kept_.clear(); // it is read elsewhere, or has been written to
    }
    return done + CopyFrom(window_, file, data + done, length - done, offset + done);
}

//! Copies what the window holds of the piece from its start on, as long as nothing has been written to the
//! file since the window was read.
uint64_t ReadAhead::CopyFrom(const Window &window, const File &file, char *data, uint64_t length,
                             uint64_t offset) {
    if (length == 0 || offset < window.start || offset >= window.End() ||
        file.ContentVersion() != window.version) {
        return 0;
    }
    const uint64_t held = std::min(length, window.End() - offset);
    memcpy(data, window.memory.Data() + (offset - window.start), held);
    return held;
}

//! Gives up the window; one of a log is kept if all before it are. Returns memory for another one.
WindowMemory ReadAhead::Leave() {
    Window left = std::exchange(window_, Window());
    const uint64_t kept_end = kept_.empty() ? 0 : kept_.back().End();
    if (keep_until_ == 0 || left.Empty() || left.start != kept_end || left.End() > keep_until_) {
        return std::move(left.memory);
    }
    kept_.push_back(std::move(left));
    return WindowMemory();
}

//! Makes the window begin at `offset`. False when it cannot:
//! bytes that nobody asked for must not fail a read.
bool ReadAhead::Advance(File &file, uint64_t length, uint64_t offset) {
    if (failed_ || (!window_.Empty() && window_.version != file.ContentVersion())) {
        DropLocked(); // somebody writes, perhaps often: it begins anew with the next piece
        return false;
    }
    const uint64_t wanted = std::max({WINDOW_BYTES_MIN, 2 * window_.length, 4 * length});
    try {
        WindowMemory memory = Leave();
        if (next_.valid()) {
            window_ = next_.get();
            StartNext(file, std::move(memory));
        } else {
            window_ = Fetch(file, std::move(memory), AlignDown(offset, PAGE_BYTES),
                            AlignUp(std::min(wanted, LongestOf(file)), PAGE_BYTES));
            if (wanted >= LongestOf(file)) {
                StartNext(file, WindowMemory());
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

uint64_t ReadAhead::LongestOf(const File &file) {
    return file.Kind() == FileKind::WAL ? LOG_WINDOW_BYTES_MAX : WINDOW_BYTES_MAX;
}

ReadAhead::Window ReadAhead::Fetch(File &file, WindowMemory memory, uint64_t start, uint64_t length) {
    Window window;
    window.version = file.ContentVersion();
    window.start = start;
    window.memory = memory.Bytes() >= length ? std::move(memory) : WindowMemory(length);
    window.length = file.Read(window.memory.Data(), length, start);
    return window;
}

//! Reads the window behind this one in a thread, while this one is copied from. Where no thread can be had,
//! it is read when it is wanted.
void ReadAhead::StartNext(File &file, WindowMemory memory) {
    const uint64_t start = window_.End();
    if (start >= file.Size() || !IsAligned(start, PAGE_BYTES)) {
        return;
    }
    try {
        next_ = std::async(std::launch::async, [&file, start, memory = std::move(memory)]() mutable {
            return Fetch(file, std::move(memory), start, LongestOf(file));
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
    kept_.clear();
    keep_until_ = 0;
}

//! Nothing lies ahead any more.
void ReadAhead::EndLocked() {
    next_ = std::future<Window>(); // waits for its thread
    try {
        Leave();
    } catch (const std::bad_alloc &) {
        DropLocked();
    }
}

} // namespace rawduck
