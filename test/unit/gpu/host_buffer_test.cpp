//! Host memory of results: what is appended comes back whole, from pinned chunks as long as there are some.
#include "gpu/device/host_buffer.hpp"

#include "gpu/checked_driver.hpp"
#include "gpu/device/cuda/cuda_device.hpp"
#include "gpu/device/emulated.hpp"

#include <cstring>
#include <numeric>
#include <set>

namespace rawduck::gpu::testing {
namespace {

constexpr uint64_t CHUNK = HostMemory::CHUNK_BYTES, CHUNKS = Device::MOST_CHUNK_BYTES / CHUNK;

class HostBufferTest : public CheckedDriver {};

std::vector<uint8_t> Contents(const HostBuffer &buffer) {
    std::vector<uint8_t> contents(buffer.Size());
    buffer.ForEachChunk([&](const uint8_t *data, uint64_t offset, uint64_t bytes) {
        std::memcpy(contents.data() + offset, data, bytes);
    });
    return contents;
}

void AppendNumbers(HostBuffer &buffer, uint64_t first, uint64_t count) {
    buffer.Append(count, sizeof(uint64_t), [&](uint8_t *to, uint64_t begin, uint64_t part) {
        auto *numbers = reinterpret_cast<uint64_t *>(to);
        std::iota(numbers, numbers + part, first + begin);
    });
}

//! So many values, and five more.
void AppendAndCompare(const std::shared_ptr<HostMemory> &memory, uint64_t width, uint64_t bytes,
                      bool is_pinned) {
    HostBuffer buffer(memory);
    std::vector<uint8_t> expected;
    const uint64_t count = bytes / width + 5;
    for (uint64_t added = 0; added < count; added += 1000) {
        buffer.Append(std::min<uint64_t>(1000, count - added), width,
                      [&](uint8_t *to, uint64_t first, uint64_t part) {
                          for (uint64_t i = 0; i < part * width; i++) {
                              to[i] = static_cast<uint8_t>((added + first) * 7 + i);
                              expected.push_back(to[i]);
                          }
                      });
    }
    EXPECT_EQ(buffer.Size(), count * width);
    EXPECT_EQ(Contents(buffer), expected);
    EXPECT_EQ(buffer.IsPinned(), is_pinned);
}

TEST_F(HostBufferTest, ValuesOfAllWidthsCrossChunks) {
    const auto ordinary = std::make_shared<HostMemory>();
    const auto pinned = std::make_shared<HostMemory>(std::make_shared<EmulatedDevice>());
    for (const uint64_t width : {1, 2, 4, 8, 16}) {
        AppendAndCompare(ordinary, width, HostMemory::SMALL_BYTES - 4 * width, false);
        AppendAndCompare(ordinary, width, HostMemory::LARGE_BYTES, false);
        AppendAndCompare(pinned, width, 3 * CHUNK, true);
    }
    EXPECT_EQ(ordinary->Peak(), 2 * HostMemory::LARGE_BYTES); // of one buffer at a time
    EXPECT_EQ(pinned->Peak(), 4 * CHUNK);
}

TEST_F(HostBufferTest, FewValuesHoldLittle) {
    const auto device = std::make_shared<cuda::CudaDevice>(Open());
    const auto memory = std::make_shared<HostMemory>(device);
    HostBuffer buffer(memory);
    AppendNumbers(buffer, 0, HostMemory::SMALL_BYTES / sizeof(uint64_t));
    EXPECT_EQ(buffer.HeldBytes(), HostMemory::SMALL_BYTES);
    EXPECT_FALSE(buffer.IsPinned());
    AppendNumbers(buffer, HostMemory::SMALL_BYTES / sizeof(uint64_t), 1);
    EXPECT_EQ(buffer.HeldBytes(), CHUNK);
    EXPECT_TRUE(buffer.IsPinned());
}

TEST_F(HostBufferTest, BytesAndFillsAreSplitWhereAChunkEnds) {
    HostBuffer buffer(std::make_shared<HostMemory>(std::make_shared<EmulatedDevice>()));
    const std::vector<uint8_t> text(CHUNK + 77, 't');
    buffer.AppendFill(3, CHUNK - 1);
    buffer.AppendBytes(text.data(), text.size());
    buffer.AppendBytes(nullptr, 0);
    buffer.AppendFill(5, 2 * CHUNK);
    std::vector<uint8_t> expected(CHUNK - 1, 3);
    expected.insert(expected.end(), text.begin(), text.end());
    expected.insert(expected.end(), 2 * CHUNK, 5);
    EXPECT_EQ(Contents(buffer), expected);
    EXPECT_TRUE(buffer.IsPinned());
    const HostBuffer moved = std::move(buffer);
    EXPECT_EQ(Contents(moved), expected);
}

TEST_F(HostBufferTest, OrdinaryMemoryTakesOverWhereNoChunkIsLeft) {
    const auto device = std::make_shared<cuda::CudaDevice>(Open());
    const uint64_t before = device->PinnedBytes();
    const auto memory = std::make_shared<HostMemory>(device);
    HostBuffer first(memory), second(memory);
    first.AppendFill(1, Device::MOST_CHUNK_BYTES);
    EXPECT_TRUE(first.IsPinned());
    std::set<const uint8_t *> places;
    first.ForEachChunk([&](const uint8_t *data, uint64_t, uint64_t) { places.insert(data); });
    EXPECT_EQ(places.size(), CHUNKS);
    second.AppendFill(2, CHUNK + 1);
    EXPECT_EQ(second.HeldBytes(), 2 * CHUNK);
    EXPECT_FALSE(second.IsPinned());
    EXPECT_EQ(Contents(first), std::vector<uint8_t>(Device::MOST_CHUNK_BYTES, 1));
    EXPECT_EQ(device->PinnedBytes(), before + Device::MOST_CHUNK_BYTES);
    EXPECT_EQ(device->PinnedBytes(), Counts().pinned_bytes);
    EXPECT_EQ(memory->Peak(), Device::MOST_CHUNK_BYTES + 2 * CHUNK);
    {
        const HostBuffer let_go = std::move(first);
    }
    HostBuffer third(memory);
    third.AppendFill(3, CHUNK);
    EXPECT_TRUE(third.IsPinned());
    EXPECT_EQ(device->PinnedBytes(), before + Device::MOST_CHUNK_BYTES);
}

TEST_F(HostBufferTest, ADeviceCopiesFromChunksByItself) {
    const auto device = std::make_shared<cuda::CudaDevice>(Open());
    HostBuffer numbers(std::make_shared<HostMemory>(device));
    AppendNumbers(numbers, 0, 10'000);
    AppendNumbers(numbers, 10'000, 1);
    const Memory to = device->Allocate(numbers.Size(), Purpose::COPIED);
    std::vector<CopiedPiece> copies;
    numbers.ForEachChunk([&](const uint8_t *data, uint64_t offset, uint64_t bytes) {
        copies.push_back({data, to.Data() + offset, bytes});
    });
    EXPECT_EQ(copies.size(), 3u);
    device->CopyInPinned(copies);
    device->WaitFor(*device->CopiesSoFar());
    std::vector<uint64_t> found(10'001), expected(found.size());
    device->CopyOut(found.data(), to.Data(), numbers.Size());
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(found, expected);
}

TEST_F(HostBufferTest, PinningThatFailsIsNoErrorAndNotTriedForEveryChunk) {
    constexpr int OUT_OF_MEMORY = 2;
    const auto device = std::make_shared<cuda::CudaDevice>(Open());
    fail_(3, OUT_OF_MEMORY); // behind the context that is entered
    EXPECT_EQ(device->TryTakeChunk().Data(), nullptr);
    EXPECT_EQ(failed_(), std::string("cuMemHostAlloc"));
    const uint64_t calls = Counts().calls;
    HostBuffer buffer(std::make_shared<HostMemory>(device));
    buffer.AppendFill(9, CHUNK);
    EXPECT_FALSE(buffer.IsPinned());
    EXPECT_EQ(Contents(buffer), std::vector<uint8_t>(CHUNK, 9));
    EXPECT_EQ(Counts().calls, calls);
}

} // namespace
} // namespace rawduck::gpu::testing
