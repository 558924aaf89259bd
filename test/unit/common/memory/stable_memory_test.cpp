#include "common/memory/stable_memory.hpp"

#include "common/memory/buffers/buffer_memory.hpp"
#include "support/test_support.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>

namespace rawduck {
namespace {

class Recorder final : public StableMemory::Watcher {
  public:
    struct Told {
        char *begin;
        uint64_t bytes, number;
        char first; //!< what was in the pages
    };
    Recorder() { StableMemory::Watch(*this); }
    ~Recorder() override { StableMemory::Unwatch(*this); }
    void PagesGo(char *begin, uint64_t bytes, uint64_t number, StableMemory::Afterwards &) noexcept override {
        std::lock_guard<std::mutex> guard(mutex_);
        told_.push_back({begin, bytes, number, *begin});
    }
    //! What it was told of these bytes. Other tests' memory may go, too.
    std::vector<Told> Of(const char *memory) {
        std::lock_guard<std::mutex> guard(mutex_);
        std::vector<Told> of_memory;
        std::copy_if(told_.begin(), told_.end(), std::back_inserter(of_memory), [&](const Told &told) {
            return told.begin <= memory && memory < told.begin + told.bytes;
        });
        return of_memory;
    }

  private:
    std::mutex mutex_;
    std::vector<Told> told_;
};

TEST(StableMemory, WhoeverKeepsSomethingForARangeIsToldBeforeItGoes) {
    Recorder recorder;
    const char *begin = nullptr;
    uint64_t number = 0;
    {
        const StableHugeMemory memory(2 * MIB);
        begin = memory.Data();
        memset(memory.Data(), 'a', 4096);
        std::vector<StableMemory::Range> ranges;
        StableMemory::Copy(ranges);
        const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const StableMemory::Range &range) {
            return range.begin == reinterpret_cast<uint64_t>(begin);
        });
        ASSERT_NE(found, ranges.end());
        number = found->number;
        EXPECT_NE(number, 0u);
        EXPECT_TRUE(recorder.Of(begin).empty());
    }
    const auto told = recorder.Of(begin);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].begin, begin);
    EXPECT_EQ(told[0].bytes, 2 * MIB);
    EXPECT_EQ(told[0].number, number);
    EXPECT_EQ(told[0].first, 'a') << "the last moment at which they are there";
}

TEST(StableMemory, PagesOfBlocksAreToldOfWithoutANumber) {
    BufferMemory memory(BufferMemory::ADDRESS_MIN + 64 * MIB);
    char *const block = memory.Allocate(256 * KIB);
    ASSERT_NE(block, nullptr);
    memset(block, 'b', 256 * KIB);
    Recorder recorder;
    memory.Free(block);
    memory.GiveBackUnused();
    memory.GiveBackUnused();
    const auto told = recorder.Of(block);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].number, 0u);
}

//! Puts off what needs the locks of the list and of an arena: with one of them held it would wait for ever.
class Postponer final : public StableMemory::Watcher {
  public:
    explicit Postponer(const StagingArena &arena) : arena_(arena) { StableMemory::Watch(*this); }
    ~Postponer() override { StableMemory::Unwatch(*this); }
    void PagesGo(char *, uint64_t, uint64_t number, StableMemory::Afterwards &afterwards) noexcept override {
        afterwards.emplace_back([this, number] {
            std::vector<StableMemory::Range> ranges;
            StableMemory::Copy(ranges);
            calls += number != 0 && arena_.Count().used_bytes > 0 ? 1 : 0;
        });
    }
    std::atomic<int> calls{0};

  private:
    const StagingArena &arena_;
};

TEST(StableMemory, WhatIsPutOffIsDoneWithoutLocks) {
    HugeMemory memory(StagingArena::ARENA_BYTES, HugeMemory::Pages::AS_ADVISED_LATER);
    PageBacking backing;
    StagingArena arena(memory.Data(), backing);
    arena.Free(arena.Allocate(PageBacking::CHUNK_BYTES));
    const Postponer postponer(arena);
    arena.GiveBackUnused();
    arena.GiveBackUnused();
    EXPECT_GE(postponer.calls, 1) << "what is being given back counts as used";
    EXPECT_EQ(arena.Count().used_bytes + arena.Count().kept_bytes, 0u);
}

TEST(StableMemory, WhoDoesNotWatchAnyMoreIsNotTold) {
    Recorder recorder;
    StableMemory::Unwatch(recorder);
    const char *begin = nullptr;
    {
        const StableHugeMemory memory(2 * MIB);
        begin = memory.Data();
    }
    EXPECT_TRUE(recorder.Of(begin).empty());
}

} // namespace
} // namespace rawduck
