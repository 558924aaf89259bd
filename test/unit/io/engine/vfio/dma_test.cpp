//! Addresses for a device, and data pointers.
#include "io/engine/vfio/dma/data_pointer.hpp"
#include "io/engine/vfio/dma/dma_space.hpp"

#include "common/memory/buffers/buffer_memory.hpp"
#include "common/units.hpp"
#include "io/engine/vfio/model_controller.hpp"
#include "support/test_support.hpp"

#include <random>

namespace rawduck {
namespace {

constexpr uint64_t BLOCK = DmaWindow::BLOCK_BYTES;
constexpr uint64_t FIRST = IovaSpace::PREFERRED_FIRST;
const std::vector<IovaRange> WIDE = {{0, 0xFEDFFFFF}, {0xFEF00000, (uint64_t(1) << 48) - 1}};

TEST(IovaSpace, BeginsAboveWhatIsLowAndGivesBackInAnyOrder) {
    IovaSpace space(WIDE);
    const uint64_t all = space.FreeBytes();
    EXPECT_EQ(all, (uint64_t(1) << 48) - FIRST);
    const auto first = space.Take(PAGE_BYTES, PAGE_BYTES), second = space.Take(2 * MIB, 2 * MIB),
               third = space.Take(PAGE_BYTES, PAGE_BYTES);
    EXPECT_EQ(first, FIRST);
    EXPECT_EQ(second, FIRST + 2 * MIB);
    EXPECT_EQ(third, FIRST + PAGE_BYTES) << "what alignment left over is used";
    space.Give(*second, 2 * MIB);
    space.Give(*first, PAGE_BYTES);
    space.Give(*third, PAGE_BYTES);
    EXPECT_EQ(space.FreeBytes(), all);
    EXPECT_EQ(space.Take(64 * GIB, 2 * MIB), FIRST) << "what was given back is one piece again";
}

TEST(IovaSpace, ANarrowIommuIsUsedBelowButNotWhereInterruptsGo) {
    // Also when the kernel's list does not leave the window out.
    IovaSpace space({{0, 0xFFFFFFFF}});
    std::vector<uint64_t> taken;
    while (const auto iova = space.Take(MIB, PAGE_BYTES)) {
        EXPECT_TRUE(*iova + MIB <= IovaSpace::INTERRUPTS.first || *iova > IovaSpace::INTERRUPTS.last)
            << *iova;
        EXPECT_GE(*iova, MIB);
        taken.push_back(*iova);
    }
    EXPECT_EQ(taken.size(), 4096u - 2);
    EXPECT_EQ(space.FreeBytes(), 0u);
}

TEST(IovaSpace, NothingIsFoundWhereNothingFits) {
    IovaSpace space({{0, FIRST + 4 * PAGE_BYTES - 1}});
    EXPECT_EQ(IovaSpace({}).Take(PAGE_BYTES, PAGE_BYTES), std::nullopt);
    EXPECT_EQ(space.Take(8 * GIB, PAGE_BYTES), std::nullopt);
    EXPECT_EQ(IovaSpace({{0, UINT64_MAX}}).Take(PAGE_BYTES, PAGE_BYTES), FIRST);
}

TEST(DmaSpace, FindsWhatLiesWithinOneRegistration) {
    ModelState state;
    ModelController function(state);
    DmaSpace space(function);
    {
        DmaMemory first(space, 3 * PAGE_BYTES, "x"), second(space, 1, "x");
        EXPECT_EQ(second.Size(), PAGE_BYTES);
        EXPECT_NE(first.Iova(), reinterpret_cast<uintptr_t>(first.Data()));
        EXPECT_EQ(space.Find(first.Data() + 100, 200), first.Iova() + 100);
        EXPECT_EQ(space.Find(first.Data(), 3 * PAGE_BYTES), first.Iova());
        EXPECT_EQ(space.Find(first.Data() + 1, 3 * PAGE_BYTES), std::nullopt);
        EXPECT_EQ(space.Find(&state, 1), std::nullopt);
        space.Abandon();
        DmaMemory third(space, 1, "x");
        EXPECT_NE(third.Iova(), second.Iova());
    }
    EXPECT_EQ(state.cut_off, 1u);
    EXPECT_EQ(state.faults, 0u) << "a function that was abandoned is asked for nothing";
}

TEST(DmaSpace, BlocksOfTheWindowAreMappedWhenUsedAndForgottenBeforeTheirPagesGo) {
    ModelState state;
    ModelController function(state);
    SpareMemory spare;
    DmaSpace space(function);
    BufferMemory memory(BufferMemory::ADDRESS_MIN);
    ASSERT_TRUE(space.OpenWindow(memory.Begin(), memory.AddressBytes(), spare, 3 * BLOCK));
    char *const block = memory.Allocate(BLOCK);
    EXPECT_EQ(space.Find(block, BLOCK), std::nullopt) << "nothing is mapped in advance";
    const auto iova = space.Reach(block, BLOCK);
    ASSERT_TRUE(iova);
    EXPECT_EQ(space.Find(block + 512, 512), *iova + 512);
    EXPECT_EQ(space.WindowBytes(), BLOCK);
    memory.Free(block);
    EXPECT_EQ(space.WindowBytes(), BLOCK) << "free blocks are used again";
    memory.GiveBackUnused();
    memory.GiveBackUnused();
    EXPECT_EQ(space.WindowBytes(), 0u);
    EXPECT_EQ(space.Find(block, 512), std::nullopt);

    char *const run = memory.Allocate(4 * BLOCK);
    const auto first = space.Reach(run, BLOCK), across = space.Reach(run + BLOCK - 512, 1024);
    ASSERT_TRUE(first && across);
    EXPECT_EQ(*across, *first + BLOCK - 512) << "what is contiguous here is so for the device";
    EXPECT_EQ(space.Reach(run, 4 * BLOCK), std::nullopt) << "more than may be mapped";
    EXPECT_EQ(space.WindowBytes(), 3 * BLOCK);
    space.Abandon();
    EXPECT_EQ(space.Reach(run, BLOCK), std::nullopt);
    memory.Free(run);
    memory.GiveBackUnused(); // of what the function has no mapping any more
    memory.GiveBackUnused();
}

//! Otherwise what is mapped to spare copies would leave nothing to copy through, and commands could not run.
TEST(DmaSpace, AWindowLeavesMappingsForCopies) {
    ModelState state;
    state.mappings_max = 8;
    ModelController function(state);
    SpareMemory spare;
    DmaSpace space(function);
    DmaMemory queues(space, PAGE_BYTES, "x"), more_queues(space, PAGE_BYTES, "x");
    BufferMemory memory(BufferMemory::ADDRESS_MIN);
    ASSERT_TRUE(space.OpenWindow(memory.Begin(), memory.AddressBytes(), spare, UINT64_MAX));
    char *const run = memory.Allocate(8 * BLOCK);
    for (uint64_t block = 0; block < 8; block++) {
        EXPECT_EQ(space.Reach(run + block * BLOCK, BLOCK).has_value(), block < 3) << block;
    }
    DmaMemory copies(space, PAGE_BYTES, "x"), more_copies(space, PAGE_BYTES, "x");
    memory.Free(run);
}

//! The system counts what they have locked together.
TEST(DmaSpace, ControllersShareWhatMayBeLockedToSpareCopies) {
    ModelState state;
    ModelController first_function(state), second_function(state);
    SpareMemory spare;
    DmaSpace first(first_function), second(second_function);
    BufferMemory memory(BufferMemory::ADDRESS_MIN);
    ASSERT_TRUE(first.OpenWindow(memory.Begin(), memory.AddressBytes(), spare, 3 * BLOCK));
    ASSERT_TRUE(second.OpenWindow(memory.Begin(), memory.AddressBytes(), spare, 3 * BLOCK));
    char *const run = memory.Allocate(4 * BLOCK);
    EXPECT_TRUE(first.Reach(run, 2 * BLOCK));
    EXPECT_TRUE(second.Reach(run, BLOCK));
    EXPECT_FALSE(second.Reach(run + BLOCK, BLOCK));
    first.Abandon();
    memory.Free(run);
    memory.GiveBackUnused();
    memory.GiveBackUnused();
    char *const again = memory.Allocate(4 * BLOCK);
    EXPECT_TRUE(second.Reach(again, 3 * BLOCK)) << "what a dead controller had can be taken again";
    EXPECT_FALSE(second.Reach(again + 3 * BLOCK, BLOCK));
    memory.Free(again);
}

//! The bytes that a controller would transfer, in order.
std::vector<uint64_t> BytesOf(const SubmissionEntry &entry, uint32_t bytes, const uint64_t *list) {
    std::vector<uint64_t> all;
    uint64_t page = entry.data[0];
    for (uint32_t i = 0, next = 0; i < bytes; i++) {
        if (i > 0 && page % PAGE_BYTES == 0) {
            const uint64_t first = PAGE_BYTES - entry.data[0] % PAGE_BYTES;
            page = bytes - first <= PAGE_BYTES ? entry.data[1] : list[next++];
        }
        all.push_back(page++);
    }
    return all;
}

TEST(DataPointer, PagesAreListedInOrderWhereverMemoryBegins) {
    std::mt19937 random(7);
    alignas(4096) static uint64_t list[512];
    for (int round = 0; round < 300; round++) {
        const uint32_t pages = 1 + random() % 40, bytes = round < 20 ? 512 : pages * 512;
        const uint64_t iova = FIRST + (random() % 4096 & ~3u);
        SubmissionEntry entry = {};
        SetPrp(entry, iova, bytes, list, reinterpret_cast<uintptr_t>(list));
        const auto transferred = BytesOf(entry, bytes, list);
        for (uint32_t i = 0; i < bytes; i++) {
            ASSERT_EQ(transferred[i], iova + i) << "round " << round;
        }
        EXPECT_EQ(entry.flags, 0);
    }
}

TEST(DataPointer, TheLongestTransferFillsAListOfOnePage) {
    alignas(4096) static uint64_t list[512];
    const uint32_t bytes = 2 * MIB - PAGE_BYTES;
    EXPECT_LE(PrpListEntriesMax(bytes) * sizeof(uint64_t), PAGE_BYTES);
    SubmissionEntry entry = {};
    SetPrp(entry, FIRST + 4092, bytes, list, reinterpret_cast<uintptr_t>(list));
    EXPECT_EQ(list[510], FIRST + 511 * PAGE_BYTES);
    EXPECT_DEATH(SetPrp(entry, FIRST + 2, bytes, list, 0), "multiple of 4");
    EXPECT_DEATH(SetPrp(entry, FIRST, bytes, list, PAGE_BYTES - 8), "within a page");
}

TEST(DataPointer, ASglIsOneBlock) {
    SubmissionEntry entry = {};
    SetSgl(entry, FIRST + 4, 256 * KIB);
    EXPECT_EQ(entry.flags, 0x40);
    EXPECT_EQ(entry.data[0], FIRST + 4);
    EXPECT_EQ(entry.data[1], 256 * KIB);
}

} // namespace
} // namespace rawduck
