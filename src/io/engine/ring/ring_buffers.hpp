//! The memory that a ring knows: commands to and from it carry a number instead of an address that the kernel has to
//! look up and hold page by page.
#pragma once

#include "common/memory/stable_memory.hpp"

#include <cstdint>
#include <liburing.h>
#include <string>
#include <vector>

namespace rawduck {

//! Parts of StableMemory, in huge pages' length, that commands of one ring have used often enough to make up for
//! registering them. Pages stay in memory as long as they are registered, and count towards the limit of locked memory
//! (ulimit -l); where that does not suffice, commands carry addresses. Not thread-safe, apart from the counts.
class RingBuffers {
  public:
    //! Parts that one ring knows.
    static constexpr uint32_t SLOTS = 32;
    //! Commands with a part until it is registered. They would have saved as much time as it takes to register it,
    //! and to make a new ring when it has been given back.
    static constexpr uint32_t USES_MIN = 256;
    static constexpr int NONE = -1;

    //! What an engine gains by it. Files and block devices gain nothing with memory in huge pages.
    enum class Use : uint8_t { NOTHING, SMALL_PAGES, ALL };

    //! Of all rings of the process.
    struct Counts {
        uint64_t bytes = 0;    //!< registered now, counted for each ring
        uint64_t commands = 0; //!< that used them
        std::string obstacle;  //!< why the last attempt to register failed, as a clause; empty: none did
    };
    static Counts Count();
    //! Why memory cannot be registered, a clause.
    static void NoteObstacle(std::string why);

    RingBuffers();
    RingBuffers(const RingBuffers &) = delete;
    RingBuffers &operator=(const RingBuffers &) = delete;

    //! The number under which the ring knows the memory, or NONE. To be called by the ring's own thread.
    int Find(io_uring &ring, Use use, const void *data, uint32_t length);
    //! Whether a range that was removed is known here.
    bool Knows(uint64_t range) const;
    //! The ring forgets ranges that are not listed any more. By the ring's own thread. Throws std::bad_alloc.
    void DropRemoved(io_uring &ring);
    //! It forgets one, and all. By the ring's own thread.
    void Drop(io_uring &ring, uint64_t range) noexcept;
    void DropAll(io_uring &ring) noexcept;
    //! The ring has been closed, and knows nothing any more.
    void Reset() noexcept;
    bool Empty() const { return !has_table_; }

  private:
    //! A part that was used.
    struct Part {
        uint64_t range, index;
        uint32_t uses = 0;
        int slot = NONE;
    };

    Part *PartOf(Use use, uint64_t address, uint32_t length);
    bool Register(io_uring &ring, Part &part, uint64_t begin, uint64_t bytes);
    bool MakeTable(io_uring &ring);
    void Release(io_uring &ring, Part &part) noexcept;

    std::vector<StableMemory::Range> ranges_;
    uint64_t version_ = 0; //!< of ranges_
    std::vector<Part> parts_;
    uint32_t used_slots_ = 0; //!< a bit for each
    uint32_t pause_ = 0;      //!< commands until registering is tried again
    bool has_table_ = false;
};

} // namespace rawduck
