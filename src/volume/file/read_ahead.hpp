//! Reads a file ahead for a handle that reads it in small pieces, one behind the other. DuckDB replays a
//! write-ahead log 4 KiB at a time, and decompresses files in pieces of 32 KiB; a file system would read
//! ahead into the page cache.
#pragma once

#include "volume/file/file.hpp"

#include <future>
#include <mutex>

namespace rawduck {

//! Of one handle. Thread-safe: threads that want the same bytes at once have them read once.
class ReadAhead {
  public:
    //! A handle holds two windows at most: one that is copied from, and the next, which a thread reads.
    static constexpr uint64_t WINDOW_BYTES_MAX = 1 * MIB;
    //! Of the first one, unless four pieces are more. Each is twice as long as the one before.
    static constexpr uint64_t WINDOW_BYTES_MIN = 64 * KIB;
    //! Longer pieces gain less than copying them costs.
    static constexpr uint64_t PIECE_BYTES_MAX = WINDOW_BYTES_MAX / 4;

    ReadAhead();
    ~ReadAhead();

    //! As File::Read: what was written before this call is seen, through whatever handle it was written.
    uint64_t Read(File &file, char *data, uint64_t length, uint64_t offset);
    //! Gives up the memory. When it returns, no thread of this object uses the file.
    void Drop();

  private:
    struct Window {
        AlignedBuffer bytes;
        uint64_t start = 0;   //!< in the file, at a whole page
        uint64_t version = 0; //!< of the file, before the bytes were read
        uint64_t End() const { return start + bytes.Size(); }
    };

    static Window Fetch(File &file, AlignedBuffer memory, uint64_t start, uint64_t length);
    uint64_t Copy(const File &file, char *data, uint64_t length, uint64_t offset) const;
    bool Advance(File &file, uint64_t length, uint64_t offset);
    void StartNext(File &file, AlignedBuffer memory);
    void DropLocked();

    const uint64_t fork_generation_; //!< a forked child may have inherited the mutex locked
    std::mutex mutex_;               //!< guards what follows; held while a window is read
    uint64_t expected_ = UINT64_MAX; //!< where the last piece ended
    Window window_;                  //!< empty: nothing is read ahead
    std::future<Window> next_;       //!< valid once windows have their full length
    bool failed_ = false;            //!< not tried again: what lies ahead may be what the device cannot read
};

} // namespace rawduck
