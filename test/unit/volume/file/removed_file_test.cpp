//! Files that are removed, or replaced, while somebody has them open: they can be used as before, what they
//! cover counts against the volume once, and all of it is free when they are closed.

#include "support/hooked_device.hpp"

namespace rawduck {
namespace {

constexpr uint64_t FILE_BLOCK = 256 * KIB;

TEST(RemovedFileTest, OverwritingOneDoesNotFillTheVolume) {
    for (const uint32_t lba_size : {512u, 4096u}) {
        const MemoryVolume memory(lba_size);
        auto volume = memory.Mount();
        const uint64_t used_before = volume->Info().used_bytes;
        auto file = volume->Open("x.duckdb", WriteMode(FileKind::DATABASE));
        std::mt19937_64 random(lba_size);
        std::string content = RandomBytes(random, 3 * ALLOCATION_UNIT_BYTES + 4 * FILE_BLOCK + 100);
        file->Write(content.data(), content.size(), 0);
        file->Sync();
        const uint64_t used = volume->Info().used_bytes;
        volume->Remove("x.duckdb");
        for (int i = 0; i < 1000; i++) {
            const uint64_t offset =
                i % 3 == 0 ? 3 * ALLOCATION_UNIT_BYTES + i % 4 * FILE_BLOCK : random() % (4 * FILE_BLOCK);
            const std::string bytes = RandomBytes(random, i % 3 == 0 ? FILE_BLOCK : 1 + random() % 5000);
            ASSERT_NO_THROW(file->Write(bytes.data(), bytes.size(), offset)) << "write " << i;
            content.replace(offset, bytes.size(), bytes);
            ASSERT_LE(volume->Info().used_bytes, used + 2 * FILE_BLOCK) << "write " << i;
        }
        std::string found(content.size(), '?');
        EXPECT_EQ(file->Read(&found[0], found.size(), 0), found.size());
        EXPECT_TRUE(found == content);
        file->Close();
        EXPECT_EQ(volume->Info().used_bytes, used_before);
    }
}

TEST(RemovedFileTest, WhatItReservedIsThereForOthers) {
    for (const bool written_afterwards : {false, true}) {
        const MemoryVolume memory(4096);
        auto volume = memory.Mount();
        std::vector<std::unique_ptr<OpenFile>> files;
        const std::string page(ALLOCATION_UNIT_BYTES, 'p');
        for (int i = 0; i < 60; i++) {
            const std::string name = std::to_string(i);
            files.push_back(volume->Open(name, WriteMode()));
            files.back()->Append(page.data(), page.size());
            if (i % 2 == 0) {
                volume->Remove(name);
            } else {
                volume->Open("new", WriteMode())->Append("x", 1);
                volume->Move("new", name);
            }
            if (written_afterwards) {
                files.back()->Append(page.data(), page.size());
            }
        }
        auto large = volume->Open("large.duckdb", WriteMode(FileKind::DATABASE));
        const std::string block(FILE_BLOCK, 'l');
        for (uint64_t written = 0; written < 52 * MIB; written += FILE_BLOCK) {
            ASSERT_NO_THROW(large->Write(block.data(), FILE_BLOCK, written)) << written;
        }
        for (const auto &file : files) {
            file->Append(page.data(), page.size()); // and it can go on
        }
        large.reset();
        files.clear();
        volume->Remove("large.duckdb");
        EXPECT_EQ(volume->Info().used_bytes, 30 * ALLOCATION_UNIT_BYTES);
    }
}

TEST(RemovedFileTest, AReaderKeepsNothingThatItsLastWriterReserved) {
    const MemoryVolume memory(4096);
    auto volume = memory.Mount();
    auto writer = volume->Open("x", WriteMode());
    writer->Append("x", 1);
    auto reader = volume->Open("x", OpenMode());
    volume->Remove("x");
    writer->Close();
    EXPECT_EQ(volume->Info().used_bytes, ALLOCATION_UNIT_BYTES);
    char found = '?';
    EXPECT_EQ(reader->Read(&found, 1, 0), 1u);
    EXPECT_EQ(found, 'x');
    reader->Close();
    EXPECT_EQ(volume->Info().used_bytes, 0u);
}

// What a mount would read stays until the record is durable that removes or replaces the file. The record of
// a recovered log that replaces the log waits for the next one.
TEST(RemovedFileTest, WhatIsOverwrittenBeforeTheRemovalIsDurableIsStillThere) {
    const SimulatedVolume simulated(512);
    const std::string before(64 * KIB, 'b'), after(64 * KIB, 'a');
    auto volume = simulated.Mount();
    auto log = volume->Open("x.duckdb.wal", WriteMode());
    log->Append(before.data(), before.size());
    log->Sync();
    {
        auto next = volume->Open("x.duckdb.wal.recovery", WriteMode());
        next->Append("next", 4);
        next->Sync();
    }
    const uint64_t events = simulated.medium->Events();
    volume->Move("x.duckdb.wal.recovery", "x.duckdb.wal");
    log->Write(after.data(), after.size(), 0);
    log->Write(before.data(), ALLOCATION_UNIT_BYTES, 0);
    for (uint64_t cut = events; cut <= simulated.medium->Events(); cut++) {
        for (uint64_t seed = 0; seed < 10; seed++) {
            PowerCutReport report;
            const auto found = simulated.MountMedium(simulated.medium->PowerCut(cut, seed, report));
            const std::string content = ReadAll(*found, "x.duckdb.wal");
            ASSERT_TRUE(content == before || content == "next") << "cut after event " << cut;
        }
    }
}

} // namespace
} // namespace rawduck
