//! Handles that read in small pieces, one behind the other: few reads of the device, and never what is no
//! more in the file.

#include "support/damaged_volume.hpp"
#include "support/hooked_device.hpp"
#include "support/no_more_threads.hpp"
#include "support/out_of_memory.hpp"
#include "support/test_support.hpp"

#include <algorithm>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t PIECE = 4 * KIB;
//! Whoever has read so far has a window of full length, and a thread reads the next one.
constexpr uint64_t FULL_WINDOWS = 1 * MIB;

class ReadAheadTest : public ::testing::Test {
  protected:
    static std::string Piece(OpenFile &file, uint64_t offset, uint64_t length = PIECE) {
        std::string bytes(length, '?');
        bytes.resize(file.Read(&bytes[0], length, offset));
        return bytes;
    }
    static std::string InPieces(OpenFile &file, uint64_t length) {
        std::string found;
        for (;;) {
            const std::string piece = Piece(file, found.size(), length);
            if (piece.empty()) {
                return found;
            }
            found += piece;
        }
    }
    static void Put(OpenFile &file, const std::string &content) {
        file.Append(content.data(), content.size());
        file.Sync();
    }
    std::shared_ptr<Volume> Mount(const MemoryVolume &memory) const {
        return Volume::Mount(ResolveTarget(memory.name), MountOptions(), stats);
    }
    uint64_t Reads() const { return stats->Snapshot(IoOperation::READ).requests; }
    uint64_t BytesRead() const { return stats->Snapshot(IoOperation::READ).bytes; }

    //! A file of 1 MiB of 'a', and a handle that has begun to read it ahead.
    struct Reader {
        explicit Reader(Volume &volume) : writer(volume.Open("f", WriteMode())) {
            Put(*writer, std::string(MIB, 'a'));
            handle = volume.Open("f", OpenMode());
            for (; offset < 4 * PIECE; offset += PIECE) {
                Piece(*handle, offset);
            }
        }
        std::unique_ptr<OpenFile> writer, handle;
        uint64_t offset = 0;
    };

    const std::shared_ptr<IoStats> stats = std::make_shared<IoStats>();
    std::mt19937_64 random{1};
};

TEST_F(ReadAheadTest, ALogThatIsReadInSmallPiecesTakesFewReads) {
    for (const uint32_t lba_size : {512u, 4096u}) {
        const MemoryVolume memory(lba_size);
        const std::string content = RandomBytes(random, 8 * MIB + 1000);
        Put(*Mount(memory)->Open("x.wal", WriteMode(FileKind::WAL)), content);
        for (const uint64_t length : {100 * uint64_t{1}, 1000 * uint64_t{1}, PIECE, 100 * KIB, 256 * KIB}) {
            auto volume = Mount(memory);
            auto file = volume->Open("x.wal", OpenMode());
            stats->Reset();
            EXPECT_TRUE(InPieces(*file, length) == content) << length;
            EXPECT_LE(Reads(), 20u) << "pieces of " << length;
            EXPECT_LE(BytesRead(), content.size() + 2 * PIECE) << "nothing is read twice";
        }
    }
}

// DuckDB looks for a checkpoint in it, and then replays it; where its end is torn, not all of it the first time.
TEST_F(ReadAheadTest, ALogThatIsReadTwiceIsReadFromTheDeviceOnce) {
    const MemoryVolume memory(4096);
    const std::string content = RandomBytes(random, 8 * MIB + 1000);
    Put(*Mount(memory)->Open("x.wal", WriteMode(FileKind::WAL)), content);
    for (const uint64_t first : {content.size(), 5 * MIB + 100, 2 * MIB, 10 * KIB}) {
        auto volume = Mount(memory);
        auto file = volume->Open("x.wal", OpenMode());
        stats->Reset();
        std::string found;
        while (found.size() < first) {
            found += Piece(*file, found.size(), std::min(PIECE, first - found.size()));
        }
        EXPECT_TRUE(found == content.substr(0, first));
        EXPECT_TRUE(InPieces(*file, PIECE) == content) << first;
        EXPECT_LE(BytesRead(), content.size() + 3 * MIB) << first << " bytes before";
        EXPECT_TRUE(InPieces(*file, 100) == content) << "once more";
        EXPECT_LE(BytesRead(), 2 * content.size() + 4 * MIB) << "which gave its memory up";
        EXPECT_TRUE(Piece(*file, 7 * MIB) == content.substr(7 * MIB, PIECE));
        EXPECT_TRUE(Piece(*file, 0) == content.substr(0, PIECE));
    }
}

TEST_F(ReadAheadTest, OfALogNotMoreIsKeptThanItMay) {
    const MemoryVolume memory(4096, 192 * MIB);
    auto volume = Mount(memory);
    const uint64_t size = ReadAhead::KEPT_BYTES_MAX + 5 * MIB;
    {
        auto writer = volume->Open("x.wal", WriteMode(FileKind::WAL));
        for (uint64_t i = 0; i < size / MIB; i++) {
            const std::string content(MIB, static_cast<char>(i));
            writer->Append(content.data(), content.size());
        }
    }
    auto file = volume->Open("x.wal", OpenMode());
    stats->Reset();
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t offset = 0; offset < size; offset += 128 * KIB) {
            const std::string expected(128 * KIB, static_cast<char>(offset / MIB));
            ASSERT_TRUE(Piece(*file, offset, 128 * KIB) == expected) << pass << ": " << offset;
        }
    }
    EXPECT_GE(BytesRead(), size + 5 * MIB);
}

TEST_F(ReadAheadTest, ItSeesWhatIsWrittenToALogBeforeTheSecondTime) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    auto writer = volume->Open("x.wal", WriteMode(FileKind::WAL));
    std::string content = RandomBytes(random, 4 * MIB);
    Put(*writer, content);
    for (const uint64_t place : {uint64_t(0), 64 * KIB - 10, 2 * MIB + 5}) {
        auto file = volume->Open("x.wal", OpenMode());
        EXPECT_TRUE(InPieces(*file, PIECE) == content);
        for (uint64_t offset = 0; offset < place; offset += PIECE) {
            Piece(*file, offset);
        }
        const std::string fresh = RandomBytes(random, 100);
        writer->Write(fresh.data(), fresh.size(), place);
        content.replace(place, fresh.size(), fresh);
        EXPECT_TRUE(Piece(*file, AlignDown(place, PIECE), 2 * PIECE) ==
                    content.substr(AlignDown(place, PIECE), 2 * PIECE));
        EXPECT_TRUE(InPieces(*file, PIECE) == content);
    }
}

TEST_F(ReadAheadTest, WhatIsNotReadInPiecesIsReadAsItIsAskedFor) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    Put(*volume->Open("f", WriteMode()), RandomBytes(random, 4 * MIB));
    auto file = volume->Open("f", OpenMode());
    stats->Reset();
    for (uint64_t i = 0; i < 100; i++) {
        Piece(*file, (i * 37 % 100) * 10 * PIECE);
    }
    EXPECT_EQ(BytesRead(), 100 * PIECE) << "here and there";
    stats->Reset();
    for (uint64_t i = 0; i < 8; i++) {
        Piece(*file, i * 512 * KIB, 512 * KIB);
    }
    EXPECT_EQ(Reads(), 8u);
    EXPECT_EQ(BytesRead(), 4 * MIB) << "in large pieces";
}

TEST_F(ReadAheadTest, DatabasesAreReadAheadByDuckDB) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    Put(*volume->Open("x.duckdb", WriteMode(FileKind::DATABASE)), RandomBytes(random, 4 * MIB));
    auto file = volume->Open("x.duckdb", OpenMode());
    stats->Reset();
    for (uint64_t i = 0; i < 10; i++) {
        Piece(*file, i * PIECE);
    }
    EXPECT_EQ(BytesRead(), 10 * PIECE);
}

TEST_F(ReadAheadTest, ItSeesWhatAnotherHandleHasWritten) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    Reader reader(*volume);
    for (int i = 0; i < 20; i++, reader.offset += PIECE) {
        const std::string fresh(PIECE, static_cast<char>('b' + i));
        reader.writer->Write(fresh.data(), fresh.size(), reader.offset);
        EXPECT_TRUE(Piece(*reader.handle, reader.offset) == fresh) << "write " << i;
    }
    EXPECT_TRUE(Piece(*reader.handle, reader.offset) == std::string(PIECE, 'a'));
}

TEST_F(ReadAheadTest, ItSeesWhatItsOwnHandleHasWritten) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    Reader reader(*volume);
    OpenMode both = WriteMode();
    both.read = true;
    auto handle = volume->Open("f", both);
    for (uint64_t offset = 0; offset < 64 * PIECE; offset += PIECE) {
        const std::string fresh(PIECE, 'b');
        if (offset % (5 * PIECE) == 0) {
            handle->Write(fresh.data(), fresh.size(), offset);
        }
        EXPECT_TRUE(Piece(*handle, offset) == std::string(PIECE, offset % (5 * PIECE) == 0 ? 'b' : 'a'));
    }
}

TEST_F(ReadAheadTest, ItSeesThatAnotherHandleHasTruncatedTheFile) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    Reader reader(*volume);
    const std::string fresh(64 * KIB, 'b');
    reader.writer->Truncate(reader.offset);
    reader.writer->Append(fresh.data(), fresh.size());
    EXPECT_TRUE(Piece(*reader.handle, reader.offset) == fresh.substr(0, PIECE));
}

TEST_F(ReadAheadTest, ItEndsWhereAnotherHandleHasTruncatedTheFile) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    Reader reader(*volume);
    reader.writer->Truncate(reader.offset + 100);
    EXPECT_EQ(Piece(*reader.handle, reader.offset), std::string(100, 'a'));
    reader.writer->Truncate(reader.offset);
    EXPECT_EQ(Piece(*reader.handle, reader.offset), "");
}

TEST_F(ReadAheadTest, ItSeesWhatIsAppendedToALogThatItFollows) {
    const MemoryVolume memory(512);
    auto volume = Mount(memory);
    auto writer = volume->Open("x.wal", WriteMode(FileKind::WAL));
    auto reader = volume->Open("x.wal", OpenMode());
    std::string content, found;
    for (int i = 0; i < 300; i++) {
        const std::string bytes = RandomBytes(random, random() % 9000);
        writer->Append(bytes.data(), bytes.size());
        if (i % 7 == 0) {
            writer->Sync();
        }
        content += bytes;
        while (random() % 5 != 0 && found.size() < content.size()) {
            found += Piece(*reader, found.size(), 1 + random() % PIECE);
        }
    }
    while (found.size() < content.size()) {
        found += Piece(*reader, found.size());
    }
    EXPECT_TRUE(found == content);
}

TEST_F(ReadAheadTest, AFileThatIsRemovedOrReplacedIsReadToItsEnd) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    Reader reader(*volume);
    const std::string fresh(MIB, 'b');
    Put(*volume->Open("new", WriteMode()), fresh);
    volume->Move("new", "f");
    for (; reader.offset < MIB; reader.offset += PIECE) {
        ASSERT_TRUE(Piece(*reader.handle, reader.offset) == std::string(PIECE, 'a'));
    }
    EXPECT_TRUE(InPieces(*volume->Open("f", OpenMode()), PIECE) == fresh);
}

TEST_F(ReadAheadTest, WithoutMemoryForItTheReadSucceeds) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    const std::string content = RandomBytes(random, MIB);
    Put(*volume->Open("f", WriteMode()), content);
    Put(*volume->Open("f.wal", WriteMode(FileKind::WAL)), content);
    int failed = 0;
    for (int64_t allocations = 0; allocations < 40; allocations++) {
        auto file = volume->Open(allocations % 2 == 0 ? "f" : "f.wal", OpenMode());
        std::string found(MIB, '?');
        Piece(*file, 0);
        memcpy(&found[0], content.data(), PIECE);
        const OutOfMemoryAfter none(allocations / 2);
        try {
            for (uint64_t offset = PIECE; offset < 2 * MIB; offset += PIECE) {
                file->Read(&found[offset % MIB], PIECE, offset % MIB); // of a log, some of it a second time
            }
            EXPECT_TRUE(found == content);
            failed += none.Failed() ? 1 : 0;
        } catch (const std::bad_alloc &) {
            // Also a plain read needs some.
        }
    }
    EXPECT_GT(failed, 0);
}

TEST_F(ReadAheadTest, WithoutThreadsItIsReadAheadAllTheSame) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    const std::string content = RandomBytes(random, 8 * MIB);
    Put(*volume->Open("f", WriteMode()), content);
    auto file = volume->Open("f", OpenMode());
    stats->Reset();
    const NoMoreThreads none;
    EXPECT_TRUE(InPieces(*file, PIECE) == content);
    EXPECT_LE(Reads(), 20u);
}

TEST_F(ReadAheadTest, AForkedChildIsRefusedAsEverAndCanCloseTheFile) {
    std::atomic<bool> begun{false}, forked{false}; // which the thread looks at until the file is closed
    const SimulatedVolume simulated(4096);
    auto volume = simulated.Mount();
    const std::string content = RandomBytes(random, 8 * MIB);
    Put(*volume->Open("f", WriteMode()), content);
    auto file = volume->Open("f", OpenMode());
    simulated.hook->Set([&, reader = std::this_thread::get_id()](const Command &) {
        begun = begun || std::this_thread::get_id() != reader;
        while (begun && !forked) {
            std::this_thread::yield();
        }
    });
    uint64_t offset = 0;
    for (; offset < FULL_WINDOWS; offset += PIECE) {
        Piece(*file, offset);
    }
    while (!begun) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(InChild([&] {
        alarm(60); // ends a child that waits for its parent's thread
        const bool refused = FailureOf([&] { Piece(*file, offset); }) == ErrorCode::UNSUPPORTED;
        file.reset();
        return refused;
    }));
    forked = true;
    EXPECT_TRUE(Piece(*file, offset) == content.substr(offset, PIECE));
}

// Closing waits for that thread, which uses the file.
TEST_F(ReadAheadTest, AThreadReadsTheNextWindowUntilTheFileIsClosed) {
    const SimulatedVolume simulated(4096);
    auto volume = simulated.Mount();
    const std::string content = RandomBytes(random, 8 * MIB);
    Put(*volume->Open("f", WriteMode()), content);
    auto file = volume->Open("f", OpenMode());
    std::atomic<bool> read_by_thread{false}, closed{false}, used_when_closed{false};
    simulated.hook->Set([&, reader = std::this_thread::get_id()](const Command &command) {
        if (command.opcode != Opcode::READ || std::this_thread::get_id() == reader) {
            return;
        }
        read_by_thread = true;
        for (int i = 0; i < 100 && !closed; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        used_when_closed = used_when_closed || closed;
    });
    for (uint64_t offset = 0; offset < FULL_WINDOWS; offset += PIECE) {
        ASSERT_TRUE(Piece(*file, offset) == content.substr(offset, PIECE));
    }
    file->Close();
    closed = true;
    volume.reset();
    simulated.hook->Set(nullptr);
    EXPECT_TRUE(read_by_thread);
    EXPECT_FALSE(used_when_closed);
}

// Each byte of the file says how often it was written. What a writer has written before a read begins, the
// read sees, whichever thread reads through whichever handle.
TEST_F(ReadAheadTest, ThreadsThatShareHandlesSeeWhatWasWrittenBefore) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    constexpr uint64_t SIZE = 4 * MIB;
    const auto writer = volume->Open("f", WriteMode());
    Put(*writer, std::string(SIZE, 1));
    const std::unique_ptr<OpenFile> handles[2] = {volume->Open("f", OpenMode()),
                                                  volume->Open("f", OpenMode())};
    std::atomic<int> written{1};
    std::atomic<bool> done{false};
    std::vector<std::thread> readers;
    for (int t = 0; t < 4; t++) {
        readers.emplace_back([&, t] {
            while (!done) {
                for (uint64_t offset = 0; offset < SIZE && !HasFailure(); offset += PIECE) {
                    const int least = written;
                    const std::string piece = Piece(*handles[t % 2], offset);
                    ASSERT_GE(*std::min_element(piece.begin(), piece.end()), least) << "at " << offset;
                }
            }
        });
    }
    for (int round = 2; round < 60; round++) {
        const std::string content(SIZE, static_cast<char>(round));
        writer->Write(content.data(), content.size(), 0);
        written = round;
        for (int i = 0; i < 100; i++) {
            std::this_thread::yield(); // for readers to come to windows of their full length
        }
    }
    done = true;
    for (std::thread &reader : readers) {
        reader.join();
    }
}

TEST_F(ReadAheadTest, ThreadsThatWantTheSamePiecesHaveThemReadOnce) {
    const MemoryVolume memory(4096);
    auto volume = Mount(memory);
    Put(*volume->Open("f", WriteMode()), std::string(4 * MIB, 'a'));
    auto file = volume->Open("f", OpenMode());
    Piece(*file, 0);
    stats->Reset();
    for (uint64_t offset = PIECE; offset < 256 * PIECE; offset += PIECE) {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&] { EXPECT_EQ(Piece(*file, offset).size(), PIECE); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    EXPECT_LE(Reads(), 12u);
}

using DamagedReadAheadTest = DamagedVolumeTest;

TEST_F(DamagedReadAheadTest, WhatCannotBeReadFailsOnlyTheReadThatAsksForIt) {
    constexpr uint64_t SIZE = 4 * MIB;
    const std::string content(SIZE, 'a');
    const auto stats = std::make_shared<IoStats>();
    auto volume = Volume::MountDevice(target, OpenSimulatedDevice(medium, target, DeviceOptions()),
                                      MountOptions(), stats);
    auto writer = volume->Open("f", WriteMode());
    writer->Append(content.data(), content.size());
    writer->Sync();
    ASSERT_EQ(writer->Info().extents.size(), 1u);
    for (const uint64_t bad : {300 * KIB, 3 * MIB}) {
        const uint64_t place = writer->Info().extents.front().device_offset + bad;
        MakeUnreadable(place);
        stats->Reset();
        auto file = volume->Open("f", OpenMode());
        std::string piece(PIECE, '?');
        for (uint64_t offset = 0; offset < SIZE; offset += PIECE) {
            if (offset == bad) {
                EXPECT_EQ(FailureOf([&] { file->Read(&piece[0], PIECE, offset); }), ErrorCode::IO);
            } else {
                EXPECT_EQ(file->Read(&piece[0], PIECE, offset), PIECE) << offset;
            }
        }
        EXPECT_EQ(stats->Snapshot(IoOperation::READ).errors, 2u) << "it was tried once, and then asked for";
        WriteBytes(place, content.substr(0, LBA));
    }
}

} // namespace
} // namespace rawduck
