//! Files of a volume in memory that a GPU reads where they lie.
#include "common/memory/memory_pinner.hpp"
#include "support/volume_fixture.hpp"
#include "volume/upkeep/defragmenter.hpp"

#include <atomic>
#include <chrono>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t BLOCK = 64 * KIB;
constexpr uint64_t BLOCKS = 64;

class EasyPinner final : public MemoryPinner {
  public:
    const void *Group() const override { return this; }
    std::shared_ptr<void> Pin(void *, uint64_t) override { return std::make_shared<char>(); }
};

class PinnedFileTest : public ::testing::Test {
  protected:
    //! Of many extents: another file grows beside it.
    PinnedFileTest() {
        auto file = volume->Open("a.duckdb", WriteMode(FileKind::DATABASE)),
             other = volume->Open("b.duckdb", WriteMode(FileKind::DATABASE));
        for (uint64_t block = 0; block < BLOCKS; block++) {
            for (auto *grown : {&file, &other}) {
                const std::string bytes = RandomBytes(random, BLOCK);
                (*grown)->Append(bytes.data(), BLOCK);
                (*grown)->Sync();
                content += grown == &file ? bytes : "";
            }
        }
    }

    //! What lies where the ranges are said to lie.
    std::string Pinned(StorageFile &file, const std::vector<StorageFile::Range> &ranges) {
        std::string found;
        std::unique_ptr<StorageFile::Hold> hold;
        for (const auto &[data, length] : file.Pin(ranges, pinner, hold)) {
            found.append(data, length);
        }
        return found;
    }

    EasyPinner pinner;
    const MemoryVolume memory{4096};
    std::mt19937_64 random{11};
    std::string content;
    std::shared_ptr<Volume> volume = memory.Mount();
};

TEST_F(PinnedFileTest, LiesWhereItIsSaidToLie) {
    auto file = volume->Open("a.duckdb", WriteMode());
    EXPECT_TRUE(Pinned(*file, {{0, content.size(), nullptr}}) == content);
    const std::vector<StorageFile::Range> ranges = {
        {5 * BLOCK, BLOCK, nullptr}, {BLOCK + 4096, 3 * BLOCK, nullptr}, {63 * BLOCK, BLOCK, nullptr}};
    EXPECT_TRUE(Pinned(*file, ranges) == content.substr(5 * BLOCK, BLOCK) +
                                             content.substr(BLOCK + 4096, 3 * BLOCK) +
                                             content.substr(63 * BLOCK));
}

TEST_F(PinnedFileTest, WhatIsNotWholeInMemoryIsRead) {
    auto file = volume->Open("a.duckdb", WriteMode());
    EXPECT_EQ(Pinned(*file, {{100, BLOCK, nullptr}}), "");
    EXPECT_EQ(Pinned(*file, {{0, 100, nullptr}}), "");
    file->Append("tail", 4);
    EXPECT_EQ(Pinned(*file, {{0, BLOCK, nullptr}, {BLOCKS * BLOCK, 4, nullptr}}), "");
    const std::string bytes = RandomBytes(random, BLOCK);
    file->Write(bytes.data(), BLOCK, (BLOCKS + 8) * BLOCK); // a hole before it
    file->Sync();
    EXPECT_EQ(Pinned(*file, {{(BLOCKS + 4) * BLOCK, BLOCK, nullptr}}), "");
    EXPECT_TRUE(Pinned(*file, {{(BLOCKS + 8) * BLOCK, BLOCK, nullptr}}) == bytes);
    EXPECT_TRUE(Pinned(*file, {{0, BLOCKS * BLOCK, nullptr}}) == content);
}

TEST_F(PinnedFileTest, NothingMovesWhileItIsHeld) {
    auto file = volume->Open("a.duckdb", WriteMode());
    std::unique_ptr<StorageFile::Hold> hold;
    const auto pieces = file->Pin({{0, content.size(), nullptr}}, pinner, hold);
    ASSERT_FALSE(pieces.empty());
    std::atomic<bool> is_moved{false}, is_shortened{false};
    std::thread mover([&] {
        const auto defragmenter = volume->Defragment("a.duckdb", 0);
        while (defragmenter->Step()) {
        }
        is_moved = true;
    });
    std::thread shortener([&] {
        volume->Open("a.duckdb", WriteMode())->Truncate(BLOCK);
        is_shortened = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_FALSE(is_moved || is_shortened);
    std::string found;
    for (const auto &[data, length] : pieces) {
        found.append(data, length);
    }
    EXPECT_TRUE(found == content);
    hold.reset();
    mover.join();
    shortener.join();
    EXPECT_EQ(file->Size(), BLOCK);
}

} // namespace
} // namespace rawduck
