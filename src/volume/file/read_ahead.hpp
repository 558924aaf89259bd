//! Reads a file ahead for a handle that reads it in small pieces, one behind the other. DuckDB replays a
//! write-ahead log 4 KiB at a time, and decompresses files in pieces of 32 KiB; a file system would read
//! ahead into the page cache. A log it reads twice: to look for a checkpoint, and to replay it.
#pragma once

#include "common/memory/huge_memory.hpp"
#include "volume/file/file.hpp"

#include <deque>
#include <future>
#include <mutex>
#include <optional>

namespace rawduck {

//! Of a window. Where it is long enough in huge pages, of which a device needs to be told less, and which are touched at once.
class WindowMemory {
  public:
    WindowMemory() = default;
    explicit WindowMemory(uint64_t bytes) {
        if (bytes >= HugeMemory::HUGE_PAGE_BYTES) {
            huge_.emplace(bytes);
            huge_bytes_ = bytes;
        } else {
            small_.Resize(bytes);
        }
    }
    char *Data() { return huge_ ? huge_->Data() : small_.Data(); }
    const char *Data() const { return huge_ ? huge_->Data() : small_.Data(); }
    uint64_t Bytes() const { return huge_ ? huge_bytes_ : small_.Size(); }

  private:
    std::optional<HugeMemory> huge_;
    uint64_t huge_bytes_ = 0;
    AlignedBuffer small_;
};

//! Of one handle. Thread-safe: threads that want the same bytes at once have them read once.
class ReadAhead {
  public:
    //! A handle holds two windows at most, one that is copied from, and the next, which a thread reads; and of a log, until
    //! they are read again, those from its start on.
    static constexpr uint64_t WINDOW_BYTES_MAX = 1 * MIB;
    //! Of a log, of which a database has one: so much in flight keeps the device as busy as DuckDB.
    static constexpr uint64_t LOG_WINDOW_BYTES_MAX = 4 * MIB;
    //! Of them; less where the machine has less than eight times as much available.
    static constexpr uint64_t KEPT_BYTES_MAX = 128 * MIB;
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
        WindowMemory memory;
        uint64_t length = 0;  //!< of what was read
        uint64_t start = 0;   //!< in the file, at a whole page
        uint64_t version = 0; //!< of the file, before the bytes were read
        bool Empty() const { return length == 0; }
        uint64_t End() const { return start + length; }
    };

    static uint64_t LongestOf(const File &file);
    static Window Fetch(File &file, WindowMemory memory, uint64_t start, uint64_t length);
    void BeginLog(uint64_t size);
    uint64_t Copy(const File &file, char *data, uint64_t length, uint64_t offset);
    static uint64_t CopyFrom(const Window &window, const File &file, char *data, uint64_t length,
                             uint64_t offset);
    bool Advance(File &file, uint64_t length, uint64_t offset);
    WindowMemory Leave();
    void StartNext(File &file, WindowMemory memory);
    void EndLocked();
    void DropLocked();

    const uint64_t fork_generation_; //!< a forked child may have inherited the mutex locked
    std::mutex mutex_;               //!< guards what follows; held while a window is read
    uint64_t expected_ = UINT64_MAX; //!< where the last piece ended
    Window window_;                  //!< empty: nothing is read ahead
    uint64_t keep_until_ = 0;        //!< in the file: windows up to there are kept when they are left
    std::deque<Window> kept_;        //!< of a log, from its start or from where it is read again
    std::future<Window> next_;       //!< valid once windows have their full length
    bool failed_ = false;            //!< not tried again: what lies ahead may be what the device cannot read
};

} // namespace rawduck
