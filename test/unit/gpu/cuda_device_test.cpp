//! The GPU as a device, with the checker in place of NVIDIA's driver: opening fails at every call once, copies and
//! kernels give what the emulated device gives, and blocks are read ahead.
#include "gpu/device/cuda/cuda_device.hpp"

#include "common/error.hpp"
#include "gpu/checked_driver.hpp"
#include "gpu/device/emulated.hpp"
#include "gpu/pipeline/block_reader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <sys/mman.h>
#include <thread>

namespace rawduck::gpu::testing {
namespace {

constexpr uint64_t BLOCK_BYTES = 256 << 10;

class CudaDeviceTest : public CheckedDriver {};

TEST_F(CudaDeviceTest, OpeningFailsAtEveryCallOnceAndLeavesNothing) {
    fail_(0, UNKNOWN);
    cuda::CudaDevice(Open()).Allocate(1);
    const uint64_t calls = Counts().calls;
    uint64_t failed = 0;
    for (uint64_t call = 1; call <= calls; call++) {
        fail_(call, UNKNOWN);
        try {
            cuda::CudaDevice(Open()).Allocate(1);
        } catch (const rawduck::Error &error) {
            failed++;
            EXPECT_NE(std::string(error.what()).find("GPU 0"), std::string::npos) << error.what();
        }
        fail_(0, UNKNOWN);
        const rawduck_checker_counts left = Counts();
        ASSERT_EQ(left.memory + left.streams + left.events + left.modules + left.pools + left.contexts +
                      left.pinned_bytes,
                  0u)
            << "call " << call << " of " << calls;
    }
    EXPECT_GT(failed, 60u); // each kernel is looked up
}

TEST_F(CudaDeviceTest, NoImageForTheGpu) {
    EXPECT_THROW(cuda::Gpu(*driver_, 0, {}), rawduck::Error);
    EXPECT_THROW(cuda::Gpu(*driver_, 0, {{100, false, nullptr, 0}}), rawduck::Error);
    EXPECT_THROW(cuda::Gpu(*driver_, 1, Images()), rawduck::Error);
}

TEST_F(CudaDeviceTest, PtxTakesThePlaceOfMachineCodeThatIsRefused) {
    std::vector<KernelImage> images = Images();
    const unsigned char refused = 0; // the checker is an sm_90
    images.insert(images.begin(), {90, false, &refused, 1});
    bool is_refused = false;
    for (uint64_t call = 1; call <= 20 && !is_refused; call++) {
        constexpr int NO_BINARY_FOR_GPU = 209, OTHER = 999;
        fail_(call, OTHER);
        EXPECT_THROW(cuda::Gpu(*driver_, 0, Images()), rawduck::Error);
        is_refused = failed_() == std::string("cuModuleLoadData");
        if (is_refused) {
            fail_(call, NO_BINARY_FOR_GPU);
            EXPECT_NE(cuda::Gpu(*driver_, 0, images).Kernel("pull_pieces"), nullptr);
            fail_(call, NO_BINARY_FOR_GPU);
            EXPECT_THROW(cuda::Gpu(*driver_, 0, Images()), rawduck::Error);
        }
    }
    EXPECT_TRUE(is_refused);
}

TEST_F(CudaDeviceTest, ASlotInUseIsWaitedForWhereNoOtherCanBePinned) {
    constexpr int OUT_OF_MEMORY = 2;
    cuda::CudaDevice device(Open());
    const Memory to = device.Allocate(Device::SLOT_BYTES, Purpose::COPIED);
    for (uint64_t call = 1; call <= 6; call++) {
        {
            const Memory slot = device.TakeSlot();
            std::memset(slot.Data(), 1, slot.Size());
            device.CopyInSlot(to.Data(), slot.Data(), slot.Size());
        } // which the device has not begun with
        fail_(call, OUT_OF_MEMORY);
        std::memset(device.TakeSlot().Data(), 2, Device::SLOT_BYTES);
    }
    EXPECT_EQ(failed_(), std::string("cuMemHostAlloc"));
    Memory slot = device.TakeSlot();
    std::atomic<bool> is_back{false};
    fail_(6, OUT_OF_MEMORY);
    std::thread other([&] {
        device.TakeSlot();
        EXPECT_TRUE(is_back);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    is_back = true;
    slot = Memory();
    other.join();
    EXPECT_EQ(failed_(), std::string("cuMemHostAlloc"));
}

TEST_F(CudaDeviceTest, MemoryThatCannotBePinnedIsNoFailure) {
    cuda::CudaDevice device(Open());
    std::vector<uint8_t> memory(1 << 20);
    for (const int error : {1, 2, 304, 712, 800, 801}) {
        fail_(3, error);
        EXPECT_EQ(device.Pinner().Pin(memory.data(), memory.size()), nullptr) << error;
        EXPECT_EQ(failed_(), std::string("cuMemHostRegister_v2"));
    }
    fail_(3, UNKNOWN);
    EXPECT_THROW(device.Pinner().Pin(memory.data(), memory.size()), rawduck::Error);
    fail_(0, UNKNOWN);
    EXPECT_NE(device.Pinner().Pin(memory.data(), memory.size()), nullptr);
}

TEST_F(CudaDeviceTest, WhatFailsToBeGivenBackIsNotGivenBackTwice) {
    for (uint64_t call = 2; call <= 5; call++) { // behind entering the context
        cuda::CudaDevice device(Open());
        Memory memory = device.Allocate(100);
        fail_(call, UNKNOWN);
        memory = Memory();
        EXPECT_EQ(Counts().memory, 0u) << failed_();
        EXPECT_THROW(device.Allocate(1), rawduck::Error) << failed_();
        EXPECT_EQ(device.Allocate(1).Size(), 1u);
    }
}

TEST_F(CudaDeviceTest, MemoryOnItsWayBackIsWaitedFor) {
    cuda::CudaDevice device(Open());
    limit_(1 << 20);
    Memory memory = device.Allocate(700'000, Purpose::SHARED);
    memory = Memory(); // freed behind what others have told the default stream
    memory = device.Allocate(700'000, Purpose::COPIED);
    device.LetGoWhenIdle(std::make_shared<Memory>(std::move(memory)));
    EXPECT_EQ(device.Allocate(700'000).Size(), 700'000u);
    const Memory other = device.Allocate(400'000);
    EXPECT_THROW(device.Allocate(700'000), rawduck::Error);
}

//! The device may wait for a lock that whoever lets go has.
TEST_F(CudaDeviceTest, WhoLetsGoDoesNotWait) {
    cuda::CudaDevice device(Open());
    Memory memory = device.Allocate(100, Purpose::SHARED);
    hold_(1);
    device.LetGoWhenIdle(std::make_shared<Memory>(std::move(memory)));
    EXPECT_EQ(Counts().memory, 1u);
    hold_(0);
    for (int i = 0; i < 10000 && Counts().memory > 0; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(Counts().memory, 0u);
}

TEST_F(CudaDeviceTest, FreedMemoryIsKeptAsLongAsSomebodyWantsIt) {
    const auto device = std::make_shared<cuda::CudaDevice>(Open());
    const uint64_t kept = Counts().pool_keeps;
    EXPECT_GT(kept, 0u);
    EXPECT_LE(kept, uint64_t{4} << 30);
    auto first = device->KeepFreedMemory(), second = device->KeepFreedMemory();
    const Memory still_used = device->Allocate(100, Purpose::SHARED);
    first.reset();
    EXPECT_EQ(Counts().pool_keeps, UINT64_MAX);
    second.reset();
    EXPECT_EQ(Counts().pool_keeps, kept);
}

TEST_F(CudaDeviceTest, AnswersComeWhenTheyAreAwaited) {
    for (const unsigned seed : {0u, 1u, 2u}) {
        seed_(seed);
        cuda::CudaDevice device(Open());
        std::vector<uint8_t> numbers(100'000);
        std::iota(numbers.begin(), numbers.end(), 0);
        const Memory memory = device.Allocate(numbers.size());
        device.CopyIn(memory.Data(), numbers.data(), memory.Size());
        std::vector<std::unique_ptr<Answer>> answers;
        for (uint64_t i = 0; i < 20; i++) { // more than there is pinned memory for
            answers.push_back(device.AskFor(memory.Data() + i, i % 3 == 2 ? 90'000 : 100));
        }
        device.Fill(memory.Data(), 0xff, memory.Size()); // behind what was asked for
        answers[4].reset();                              // not awaited
        for (uint64_t i = 0; i < 20; i++) {
            if (answers[i]) {
                EXPECT_EQ(std::memcmp(answers[i]->Await(), numbers.data() + i, 100), 0) << i;
            }
        }
    }
}

TEST_F(CudaDeviceTest, CopiesOfAnySizeInAnyOrder) {
    for (const unsigned seed : {0u, 1u, 2u, 3u}) {
        seed_(seed);
        cuda::CudaDevice device(Open());
        std::vector<uint32_t> numbers(3'000'000); // more than both halves of the scratch memory
        std::iota(numbers.begin(), numbers.end(), 7);
        const Memory first = device.Allocate(numbers.size() * 4),
                     second = device.Allocate(numbers.size() * 4);
        device.CopyIn(first.Data(), numbers.data(), first.Size());
        std::vector<uint32_t> found(numbers.size());
        device.Copy(second.Data(), first.Data(), first.Size());
        device.CopyOut(found.data(), second.Data(), second.Size());
        EXPECT_EQ(found, numbers);
        for (uint64_t i = 1; i < 100; i++) { // small ones, whose ends lie anywhere
            const Memory small = device.Allocate(i * 7);
            device.CopyIn(small.Data(), numbers.data() + i, i * 7);
            device.CopyOut(found.data(), small.Data(), i * 7);
            EXPECT_EQ(std::memcmp(found.data(), numbers.data() + i, i * 7), 0) << i;
        }
    }
}

TEST_F(CudaDeviceTest, SumsAndListsAsTheEmulatedDevice) {
    cuda::CudaDevice device(Open());
    EmulatedDevice emulated;
    for (const uint64_t count : {1u, 255u, 2048u, 2049u, 600'000u}) {
        std::vector<uint32_t> lengths(count);
        std::vector<uint8_t> bytes(count);
        for (uint64_t i = 0; i < count; i++) {
            lengths[i] = static_cast<uint32_t>(i * 7919 % 100);
            bytes[i] = i % 3 == 0;
        }
        std::vector<std::vector<uint64_t>> offsets;
        std::vector<std::vector<uint32_t>> rows;
        for (Device *used : {static_cast<Device *>(&device), static_cast<Device *>(&emulated)}) {
            const Memory on_device = used->Allocate(count * 4), sums = used->Allocate((count + 1) * 8);
            used->CopyIn(on_device.Data(), lengths.data(), count * 4);
            offsets.emplace_back(count + 1);
            const uint64_t all = used->SumLengths(reinterpret_cast<uint32_t *>(on_device.Data()), count,
                                                  reinterpret_cast<uint64_t *>(sums.Data()));
            used->CopyOut(offsets.back().data(), sums.Data(), sums.Size());
            EXPECT_EQ(all, std::accumulate(lengths.begin(), lengths.end(), uint64_t{0}));
            const Memory flags = used->Allocate(count), listed = used->Allocate(count * 4);
            used->Fill(listed.Data(), 0, listed.Size());
            used->CopyIn(flags.Data(), bytes.data(), count);
            used->ListRows(flags.Data(), count, reinterpret_cast<uint32_t *>(listed.Data()));
            rows.emplace_back(count);
            used->CopyOut(rows.back().data(), listed.Data(), listed.Size());
        }
        EXPECT_EQ(offsets[0], offsets[1]);
        EXPECT_EQ(rows[0], rows[1]);
        EXPECT_EQ(rows[0][(count - 1) / 3], (count - 1) / 3 * 3);
    }
}

//! Blocks that say their number; fails at one of them.
class NumberedBlocks final : public BlockSource {
  public:
    const char *Path() const override { return "numbered"; }
    uint64_t BlockBytes() const override { return BLOCK_BYTES; }

    void Read(const std::vector<BlockRange> &ranges) override {
        for (const BlockRange &range : ranges) {
            for (uint64_t i = 0; i < range.count; i++) {
                if (range.first + i == failing) {
                    throw rawduck::Error(ErrorCode::IO, "the disk is broken");
                }
                std::memset(range.to + i * BLOCK_BYTES, static_cast<int>(range.first + i), BLOCK_BYTES);
                read++;
            }
        }
    }

    uint64_t failing = UINT64_MAX;
    uint64_t read = 0;
};

void AddAll(BlockReader &reader, const std::vector<std::set<uint64_t>> &windows) {
    for (const std::set<uint64_t> &window : windows) {
        reader.Add(window);
    }
}

TEST_F(CudaDeviceTest, BlocksAreReadAheadAndSharedOnesOnce) {
    for (const unsigned seed : {0u, 5u}) {
        seed_(seed);
        const auto device = std::make_shared<cuda::CudaDevice>(Open());
        NumberedBlocks source;
        std::set<uint64_t> many;
        for (uint64_t i = 0; i < 150; i++) { // more than two slots have
            many.insert(100 + i);
        }
        BlockReader reader(source, device);
        AddAll(reader, {{3, 4, 9}, {9, 10}, {}, many});
        BlockWindow before;
        for (const std::set<uint64_t> &wanted : {std::set<uint64_t>{3, 4, 9}, {9, 10}, {}, many}) {
            BlockWindow window = reader.Next();
            if (window.copied) {
                device->WaitFor(*window.copied);
            }
            for (const uint64_t block : window.kept) {
                device->Copy(window.places.at(block), before.places.at(block), BLOCK_BYTES);
            }
            EXPECT_EQ(window.places.size(), wanted.size());
            for (const uint64_t block : wanted) {
                std::vector<uint8_t> content(BLOCK_BYTES);
                device->CopyOut(content.data(), window.places.at(block), BLOCK_BYTES);
                EXPECT_EQ(content, std::vector<uint8_t>(BLOCK_BYTES, static_cast<uint8_t>(block)));
            }
            before = std::move(window);
        }
        EXPECT_EQ(source.read, 4 + many.size());
    }
}

//! Blocks that say their number, in memory of this process, in two pieces each; and only as long as they are held.
class BlocksInMemory final : public BlockSource {
  public:
    explicit BlocksInMemory(uint64_t count) : bytes_(count * BLOCK_BYTES) {
        memory_ = static_cast<uint8_t *>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    }
    ~BlocksInMemory() override {
        pin_.reset();
        munmap(memory_, bytes_);
    }

    const char *Path() const override { return "memory"; }
    uint64_t BlockBytes() const override { return BLOCK_BYTES; }
    void Read(const std::vector<BlockRange> &) override { FAIL() << "what lies in memory is read"; }

    struct Held final : StorageFile::Hold {
        explicit Held(BlocksInMemory &source) : source(source) {
            EXPECT_FALSE(source.is_held);
            source.is_held = true;
            source.holds++;
            for (uint64_t i = 0; i < source.bytes_ / BLOCK_BYTES; i++) {
                std::memset(source.memory_ + i * BLOCK_BYTES, static_cast<int>(i), BLOCK_BYTES);
            }
        }
        ~Held() override {
            std::memset(source.memory_, 0xee, source.bytes_);
            source.is_held = false;
        }
        BlocksInMemory &source;
    };

    std::vector<StorageFile::MemoryPiece> Pin(const std::vector<BlockRange> &ranges, MemoryPinner &pinner,
                                              std::unique_ptr<StorageFile::Hold> &hold) override {
        pin_ = pin_ ? pin_ : pinner.Pin(memory_, bytes_);
        if (!hold) {
            hold = std::make_unique<Held>(*this);
        }
        std::vector<StorageFile::MemoryPiece> pieces;
        for (const BlockRange &range : ranges) {
            for (uint64_t i = range.first; i < range.first + range.count; i++) {
                const char *begin = reinterpret_cast<const char *>(memory_) + i * BLOCK_BYTES;
                pieces.push_back({begin, 4096});
                pieces.push_back({begin + 4096, BLOCK_BYTES - 4096});
            }
        }
        return pieces;
    }

    std::atomic<bool> is_held{false};
    std::atomic<uint64_t> holds{0};

  private:
    const uint64_t bytes_;
    uint8_t *memory_;
    std::shared_ptr<void> pin_;
};

TEST_F(CudaDeviceTest, BlocksInMemoryAreCopiedFromWhereTheyLie) {
    for (const unsigned seed : {0u, 1u, 5u}) {
        seed_(seed);
        const auto device = std::make_shared<cuda::CudaDevice>(Open());
        BlocksInMemory source(200);
        std::vector<std::set<uint64_t>> windows(BlockReader::WINDOWS_HELD + 5);
        for (uint64_t i = 0; i < windows.size(); i++) {
            windows[i] = {i * 5, i * 5 + 1, i * 5 + 7, 199};
        }
        for (uint64_t i = 0; i < 150; i++) { // more pieces than a kernel takes
            windows.back().insert(i);
        }
        BlockReader reader(source, device);
        AddAll(reader, windows);
        BlockWindow before;
        for (const std::set<uint64_t> &wanted : windows) {
            BlockWindow window = reader.Next();
            device->WaitFor(*window.copied);
            for (const uint64_t block : window.kept) {
                device->Copy(window.places.at(block), before.places.at(block), BLOCK_BYTES);
            }
            EXPECT_EQ(window.places.size(), wanted.size());
            for (const uint64_t block : wanted) {
                std::vector<uint8_t> content(BLOCK_BYTES);
                device->CopyOut(content.data(), window.places.at(block), BLOCK_BYTES);
                EXPECT_EQ(content, std::vector<uint8_t>(BLOCK_BYTES, static_cast<uint8_t>(block)));
            }
            before = std::move(window);
        }
        EXPECT_GE(source.holds, 2u); // others have their turn
    }
}

TEST_F(CudaDeviceTest, NothingIsHeldWhileNobodyTakesWindows) {
    for (const unsigned seed : {0u, 3u}) {
        seed_(seed);
        const auto device = std::make_shared<cuda::CudaDevice>(Open());
        BlocksInMemory source(200);
        {
            BlockReader reader(source, device);
            for (uint64_t i = 0; i < 2 * BlockReader::BYTES_AHEAD / BLOCK_BYTES / 100; i++) {
                std::set<uint64_t> window;
                for (uint64_t block = 0; block < 100; block++) {
                    window.insert(i % 2 * 100 + block);
                }
                reader.Add(window);
            }
            reader.Next();
            for (int i = 0; (source.is_held || source.holds == 0) && i < 1000; i++) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
            EXPECT_FALSE(source.is_held);
            reader.Next();
        }
        EXPECT_FALSE(source.is_held);
    }
}

TEST_F(CudaDeviceTest, MemoryThatIsLetGoIsNoLongerCopiedFrom) {
    cuda::CudaDevice device(Open());
    std::vector<uint8_t> found(1 << 20);
    const Memory to = device.Allocate(found.size(), Purpose::COPIED);
    void *memory = mmap(nullptr, found.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(memory, 7, found.size());
    auto pin = device.Pinner().Pin(memory, found.size());
    ASSERT_NE(pin, nullptr);
    EXPECT_EQ(device.PinnedBytes(), Counts().pinned_bytes);
    device.CopyInPinned({{static_cast<uint8_t *>(memory), to.Data(), found.size() - 48}});
    const auto copied = device.CopiesSoFar();
    pin.reset();
    munmap(memory, found.size());
    EXPECT_EQ(device.PinnedBytes(), Counts().pinned_bytes);
    device.WaitFor(*copied);
    device.CopyOut(found.data(), to.Data(), found.size() - 48);
    EXPECT_EQ(std::count(found.begin(), found.end(), 7), static_cast<long>(found.size() - 48));
}

TEST_F(CudaDeviceTest, WhatReadingThrowsComesWithItsWindow) {
    const auto device = std::make_shared<cuda::CudaDevice>(Open());
    NumberedBlocks source;
    source.failing = 7;
    BlockReader reader(source, device);
    AddAll(reader, {{1}, {7}});
    EXPECT_EQ(reader.Next().places.size(), 1u);
    EXPECT_THROW(reader.Next(), rawduck::Error);
}

TEST_F(CudaDeviceTest, AReaderThatIsLeftStops) {
    const auto device = std::make_shared<cuda::CudaDevice>(Open());
    NumberedBlocks source;
    {
        BlockReader reader(source, device);
        for (uint64_t i = 0; i < 2 * BlockReader::BYTES_AHEAD / BLOCK_BYTES; i++) {
            reader.Add({i});
        }
        reader.Next();
    }
    EXPECT_LE(source.read, 2 + BlockReader::BYTES_AHEAD / BLOCK_BYTES);
}

} // namespace
} // namespace rawduck::gpu::testing
