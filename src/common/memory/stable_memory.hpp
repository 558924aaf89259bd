//! Memory of ours that stays where it is: a kernel or a device can be told of it once, instead of with each command.
//! Whoever does so is told before its pages go: the others would go on with the old pages, and nobody would notice.
#pragma once

#include "common/memory/huge_memory.hpp"
#include "common/units.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace rawduck {

//! The ranges of this process, listed from when they get pages until just before they are given back. Thread-safe.
//! In a child made by fork() the list begins anew: what the parent's threads held is not waited for.
class StableMemory {
  public:
    struct Range {
        uint64_t begin, end;     //!< addresses
        uint64_t number;         //!< never used again, while addresses are
        HugeMemory::Pages pages; //!< what was asked for
    };
    //! What is done when the pages have been told of, and no lock of this class is held.
    using Afterwards = std::vector<std::function<void()>>;
    //! Who keeps something for memory of ours.
    class Watcher {
      public:
        virtual ~Watcher() = default;
        //! Nobody uses what is in these pages any more, and this is the last moment at which they are there.
        //! `number`: of the range that they are; 0: they were not listed. Called by any thread, under the lock of the
        //! list: it must not wait for commands, allocate from BufferMemory, or call a function of this class. What
        //! takes long, and does not need the pages, is added to `afterwards`.
        virtual void PagesGo(char *begin, uint64_t bytes, uint64_t number,
                             Afterwards &afterwards) noexcept = 0;
    };

    //! Without memory for it the range is not listed, and nothing else happens.
    static void Add(const char *begin, uint64_t bytes, HugeMemory::Pages pages) noexcept;
    //! Before the range is given back. Nothing happens where it is not listed.
    static void Remove(const char *begin) noexcept;
    //! Before pages are given back that are not listed: those of BufferMemory, which go while its addresses stay.
    static void TellPagesGo(char *begin, uint64_t bytes) noexcept;
    //! Changes with the list. Whoever was given memory that is listed sees a version with it.
    static uint64_t Version() noexcept;
    //! By address. Returns their version. Throws std::bad_alloc.
    static uint64_t Copy(std::vector<Range> &ranges);

    //! Throws std::bad_alloc.
    static void Watch(Watcher &watcher);
    //! When it returns, `watcher` is not being called. Nothing happens where it does not watch.
    static void Unwatch(Watcher &watcher) noexcept;
};

//! Memory of one owner that is listed as long as it is there. Not thread-safe.
class StableHugeMemory {
  public:
    //! See HugeMemory. Throws std::bad_alloc.
    explicit StableHugeMemory(uint64_t bytes, HugeMemory::Pages pages = HugeMemory::Pages::HUGE)
        : memory_(bytes, pages), listed_(memory_.Data()) {
        StableMemory::Add(memory_.Data(), bytes, pages);
    }
    char *Data() const { return memory_.Data(); }

  private:
    struct Unlist {
        void operator()(char *memory) const { StableMemory::Remove(memory); }
    };
    HugeMemory memory_;
    std::unique_ptr<char, Unlist> listed_; //!< is gone before the memory
};

} // namespace rawduck
