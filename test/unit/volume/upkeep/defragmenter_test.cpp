//! Files in many pieces that are laid into fewer: what they hold, what stays, power cuts, and others at work meanwhile.

#include "volume/upkeep/defragmenter.hpp"

#include "support/hooked_device.hpp"
#include "support/volume_fixture.hpp"
#include "volume/check.hpp"

#include <algorithm>
#include <map>

namespace rawduck {

namespace {

constexpr uint64_t BLOCK = 64 * KIB;
const std::string NAME = "x.duckdb";

uint64_t ExtentsOf(const Volume &volume, const std::string &name = NAME) {
    FileInfo info;
    EXPECT_TRUE(volume.Stat(name, info));
    return info.extents.size();
}

//! A file of blocks, each of which was replaced elsewhere once, in random order.
std::string MakeFragmented(Volume &volume, uint64_t blocks, std::mt19937_64 &random) {
    std::string content = RandomBytes(random, blocks * BLOCK);
    auto file = volume.Open(NAME, WriteMode(FileKind::DATABASE));
    file->Append(content.data(), content.size());
    file->Sync();
    std::vector<uint64_t> order(blocks);
    for (uint64_t block = 0; block < blocks; block++) {
        order[block] = block;
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const uint64_t block : order) {
        const std::string bytes = RandomBytes(random, BLOCK);
        file->Write(bytes.data(), BLOCK, block * BLOCK);
        content.replace(block * BLOCK, BLOCK, bytes);
        if (block % 4 == 0) {
            file->Sync();
        }
    }
    file->Sync();
    file->Close();
    return content;
}

void RunToEnd(Defragmenter &defragmenter) {
    while (defragmenter.Step()) {
    }
}

void RequireSound(const std::string &target) {
    for (const CheckFinding &finding : CheckVolume(target)) {
        EXPECT_TRUE(finding.severity == CheckFinding::Severity::OK || finding.what.rfind("file ", 0) == 0)
            << finding.what << ": " << finding.detail;
    }
}

class DefragmenterTest : public ::testing::TestWithParam<uint32_t> {
  protected:
    const MemoryVolume memory{GetParam()};
    std::mt19937_64 random{7};
};

} // namespace

TEST_P(DefragmenterTest, FewerExtentsAndTheSameContents) {
    auto volume = memory.Mount();
    std::string content = MakeFragmented(*volume, 160, random);
    volume->Open(NAME, WriteMode())->Append("end", 3);
    content += "end";
    const uint64_t before = ExtentsOf(*volume), used = volume->Info().used_bytes;
    ASSERT_GT(before, 40u);
    const auto defragmenter = volume->Defragment(NAME, 0);
    RunToEnd(*defragmenter);
    EXPECT_EQ(defragmenter->ExtentsBefore(), before);
    EXPECT_EQ(defragmenter->Extents(), ExtentsOf(*volume));
    EXPECT_LE(defragmenter->Extents(), 4u); // the headers, what lies behind them, and the last unit
    EXPECT_GE(defragmenter->CopiedBytes(), content.size() - 2 * BLOCK);
    EXPECT_EQ(defragmenter->SharedBytes() + defragmenter->NoPlaceBytes(), 0u);
    EXPECT_TRUE(ReadAll(*volume, NAME) == content);
    volume->Open(NAME, WriteMode()); // its closing gives back what is only reserved
    EXPECT_EQ(volume->Info().used_bytes, used) << "the old places are free";

    const auto again = volume->Defragment(NAME, 0);
    RunToEnd(*again);
    EXPECT_EQ(again->CopiedBytes(), 0u) << "there is nothing left to do";
    const uint64_t after = ExtentsOf(*volume);
    volume.reset();
    RequireSound(memory.name);
    volume = memory.Mount();
    EXPECT_TRUE(ReadAll(*volume, NAME) == content);
    EXPECT_EQ(ExtentsOf(*volume), after) << "it is durable";
}

TEST_P(DefragmenterTest, WhatSnapshotsHaveStays) {
    auto volume = memory.Mount();
    const std::string content = MakeFragmented(*volume, 80, random);
    volume->Snapshot(NAME, "monday");
    const uint64_t before = ExtentsOf(*volume), used = volume->Info().used_bytes;
    {
        const auto defragmenter = volume->Defragment(NAME, 0);
        RunToEnd(*defragmenter);
        EXPECT_EQ(defragmenter->CopiedBytes(), 0u);
        EXPECT_GT(defragmenter->SharedBytes(), content.size() / 2);
    }
    EXPECT_EQ(ExtentsOf(*volume), before);
    EXPECT_EQ(volume->Info().used_bytes, used) << "the snapshot takes no more space than it did";
    volume->DropSnapshot(NAME + "@monday");
    RunToEnd(*volume->Defragment(NAME, 0));
    EXPECT_LT(ExtentsOf(*volume), before / 8);
    EXPECT_TRUE(ReadAll(*volume, NAME) == content);
}

//! What was written and is not durable yet is written in place, so it is not copied.
TEST_P(DefragmenterTest, AFileThatIsBeingWritten) {
    auto volume = memory.Mount();
    std::string content = MakeFragmented(*volume, 80, random);
    auto file = volume->Open(NAME, WriteMode(FileKind::DATABASE));
    const auto defragmenter = volume->Defragment(NAME, 0);
    while (defragmenter->Step()) {
        const std::string bytes = RandomBytes(random, random() % 2 == 0 ? BLOCK : 1 + random() % 20000);
        const uint64_t offset = bytes.size() == BLOCK ? random() % 90 * BLOCK : random() % content.size();
        file->Write(bytes.data(), bytes.size(), offset);
        content.resize(std::max<size_t>(content.size(), offset + bytes.size()), '\0');
        content.replace(offset, bytes.size(), bytes);
        ASSERT_TRUE(ReadAll(*volume, NAME) == content);
        if (random() % 4 == 0) {
            file->Sync();
        }
    }
    EXPECT_GT(defragmenter->CopiedBytes(), 0u);
    file->Sync();
    file.reset();
    volume = nullptr;
    RequireSound(memory.name);
}

TEST_P(DefragmenterTest, AFileThatIsCutSharedOrRemovedMeanwhile) {
    for (const int event : {0, 1, 2, 3}) {
        SCOPED_TRACE(event);
        const MemoryVolume other(GetParam());
        auto volume = other.Mount();
        std::string content = MakeFragmented(*volume, 80, random);
        {
            const auto defragmenter = volume->Defragment(NAME, 0);
            for (int step = 0; step < 3; step++) {
                ASSERT_TRUE(defragmenter->Step());
            }
            ASSERT_GT(defragmenter->CopiedBytes(), 0u);
            if (event == 0) {
                volume->Remove(NAME);
                EXPECT_LT(volume->Info().used_bytes, 3 * MIB) << "only what was taken to copy the rest to";
            } else if (event == 1) {
                content.resize(BLOCK);
                volume->Open(NAME, WriteMode())->Truncate(BLOCK);
            } else if (event == 2) {
                volume->Snapshot(NAME, "monday");
            } // or it is given up
            if (event < 3) {
                RunToEnd(*defragmenter);
            }
        }
        if (event == 0) {
            EXPECT_FALSE(volume->FileExists(NAME));
            EXPECT_EQ(volume->Info().used_bytes, 0u);
        } else {
            EXPECT_TRUE(ReadAll(*volume, NAME) == content);
            const uint64_t kept =
                event == 2 ? 2 * Defragmenter::STEP_BYTES : 0; // the old places, by the snapshot
            EXPECT_LE(volume->Info().used_bytes, AlignUp(content.size(), MIB) + kept);
        }
        volume.reset();
        RequireSound(other.name);
        if (event != 0) {
            EXPECT_TRUE(ReadAll(*other.Mount(), NAME) == content);
        }
    }
}

// Such as a reader of this process that was told of the places, and has no snapshot.
TEST_P(DefragmenterTest, WhoWasToldOfPlacesKeepsThem) {
    auto volume = memory.Mount();
    const std::string content = MakeFragmented(*volume, 80, random);
    const uint64_t before = ExtentsOf(*volume);
    OpenMode mode;
    mode.lock = OpenMode::Lock::SHARED;
    mode.in_place = true;
    {
        const auto writer = volume->Open(NAME, WriteMode());
        EXPECT_EQ(FailureOf([&] { volume->Open(NAME, mode); }), ErrorCode::LOCKED);
        writer->Close();
    }
    const auto half_done = volume->Defragment(NAME, 0);
    while (half_done->CopiedBytes() == 0) {
        ASSERT_TRUE(half_done->Step());
    }
    auto told = volume->Open(NAME, mode);
    const std::vector<ExtentInfo> places = told->Info().extents;
    RunToEnd(*half_done);
    RunToEnd(*volume->Defragment(NAME, 0));
    const std::vector<ExtentInfo> after = told->Info().extents;
    ASSERT_EQ(after.size(), places.size());
    for (size_t i = 0; i < places.size(); i++) {
        ASSERT_EQ(after[i].device_offset, places[i].device_offset) << i;
    }
    told->Close();
    RunToEnd(*volume->Defragment(NAME, 0));
    EXPECT_LT(ExtentsOf(*volume), before / 4);
    EXPECT_TRUE(ReadAll(*volume, NAME) == content);
}

TEST_P(DefragmenterTest, AFullVolume) {
    auto volume = memory.Mount();
    const std::string content = MakeFragmented(*volume, 160, random);
    auto filler = volume->Open("filler", WriteMode());
    const std::string bytes(MIB, 'f');
    EXPECT_EQ(FailureOf([&] {
                  for (;;) {
                      filler->Append(bytes.data(), bytes.size());
                      filler->Sync();
                  }
              }),
              ErrorCode::NO_SPACE);
    const uint64_t before = ExtentsOf(*volume);
    const auto defragmenter = volume->Defragment(NAME, 0);
    RunToEnd(*defragmenter);
    EXPECT_LE(ExtentsOf(*volume), before);
    EXPECT_TRUE(ReadAll(*volume, NAME) == content);
}

INSTANTIATE_TEST_SUITE_P(LbaSizes, DefragmenterTest, ::testing::Values(512u, 4096u));

TEST(DefragmentTest, OnlyFilesThatCanGainByIt) {
    const MemoryVolume memory(512);
    auto volume = memory.Mount();
    volume->Open("d/x.duckdb", WriteMode())->Append("x", 1);
    volume->Open("d/x.duckdb.wal", WriteMode())->Append("x", 1);
    volume->Snapshot("d/x.duckdb", "monday");
    volume->MakeDirectory("e");
    const std::map<std::string, std::string> refused = {{"e", "it is a directory"},
                                                        {"d/x.duckdb.wal", "it is a log"},
                                                        {"d/x.duckdb@monday", "it is a snapshot"}};
    for (const auto &refusal : refused) {
        const std::string &file = refusal.first, &why = refusal.second;
        std::string text;
        EXPECT_EQ(FailureOf([&] { volume->Defragment(file, 0); }, &text), ErrorCode::INVALID);
        EXPECT_NE(text.find(memory.name + ": cannot defragment \"" + file + "\": " + why), std::string::npos)
            << text;
    }
    std::string text;
    EXPECT_EQ(FailureOf([&] { volume->Defragment("missing", 0); }, &text), ErrorCode::NOT_FOUND);
    RunToEnd(*volume->Defragment("d/x.duckdb", 0));
    EXPECT_EQ(ReadAll(*volume, "d/x.duckdb"), "x");
}

TEST(DefragmentTest, NoFasterThanItMay) {
    const MemoryVolume memory(4096);
    auto volume = memory.Mount();
    std::mt19937_64 random(3);
    MakeFragmented(*volume, 80, random);
    const auto begin = std::chrono::steady_clock::now();
    const auto defragmenter = volume->Defragment(NAME, 20 * MIB);
    RunToEnd(*defragmenter);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took.count(),
              static_cast<double>(defragmenter->CopiedBytes() - Defragmenter::STEP_BYTES) / (20 * MIB));
}

//! Every event of it, with what the cache held lost or not.
TEST(DefragmentTest, PowerCuts) {
    for (const uint32_t lba_size : {512u, 4096u}) {
        const SimulatedVolume simulated(lba_size);
        std::mt19937_64 random(lba_size);
        std::string content;
        uint64_t begin = 0, extents = 0;
        {
            auto volume = simulated.Mount();
            content = MakeFragmented(*volume, 48, random);
            extents = ExtentsOf(*volume);
            begin = simulated.medium->Events();
            RunToEnd(*volume->Defragment(NAME, 0));
            ASSERT_LT(ExtentsOf(*volume), extents);
        }
        uint64_t old_places = 0, new_places = 0;
        for (uint64_t event = begin; event <= simulated.medium->Events(); event++) {
            for (uint64_t seed = 1; seed <= 3; seed++) {
                PowerCutReport report;
                const auto volume = simulated.MountMedium(simulated.medium->PowerCut(event, seed, report));
                ASSERT_TRUE(ReadAll(*volume, NAME) == content)
                    << "after event " << event << ", seed " << seed;
                (ExtentsOf(*volume) == extents ? old_places : new_places)++;
            }
        }
        EXPECT_GT(old_places, 0u);
        EXPECT_GT(new_places, 0u);
    }
}

//! A place that cannot be written is not switched to.
TEST(DefragmentTest, AWriteThatFails) {
    const SimulatedVolume simulated(512);
    std::mt19937_64 random(5);
    auto volume = simulated.Mount();
    const std::string content = MakeFragmented(*volume, 48, random);
    const uint64_t extents = ExtentsOf(*volume), used = volume->Info().used_bytes;
    {
        const auto defragmenter = volume->Defragment(NAME, 0);
        simulated.hook->Set([](const Command &command) {
            if (command.opcode == Opcode::WRITE) {
                throw Error(ErrorCode::IO, "the write failed");
            }
        });
        EXPECT_EQ(FailureOf([&] { RunToEnd(*defragmenter); }), ErrorCode::IO);
        simulated.hook->Set(nullptr);
    }
    EXPECT_EQ(ExtentsOf(*volume), extents);
    EXPECT_EQ(volume->Info().used_bytes, used);
    EXPECT_TRUE(ReadAll(*volume, NAME) == content);
}

//! Four threads that each have blocks of their own, and know what is in them; and readers and snapshots.
TEST(DefragmentTest, BesideWritersReadersAndSnapshots) {
    const MemoryVolume memory(4096);
    auto volume = memory.Mount();
    std::mt19937_64 random(9);
    std::string content = MakeFragmented(*volume, 96, random);
    std::atomic<bool> stop{false};
    const auto work = [&](uint64_t number) {
        auto file = volume->Open(NAME, WriteMode(FileKind::DATABASE));
        std::mt19937_64 own(number);
        std::string found(BLOCK, '?');
        for (uint64_t round = 0; !stop || round < 20; round++) {
            const uint64_t block = own() % 24 * 4 + number;
            file->Read(found.data(), BLOCK, block * BLOCK);
            ASSERT_TRUE(content.compare(block * BLOCK, BLOCK, found) == 0) << "block " << block;
            const std::string bytes = RandomBytes(own, BLOCK);
            file->Write(bytes.data(), BLOCK, block * BLOCK);
            std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(block * BLOCK));
            if (round % 8 == 0) {
                file->Sync();
            }
        }
    };
    std::vector<std::thread> threads;
    for (uint64_t number = 0; number < 4; number++) {
        threads.emplace_back(work, number);
    }
    for (int round = 0; round < 6; round++) {
        if (round % 2 == 1) {
            volume->Snapshot(NAME, "s");
        }
        RunToEnd(*volume->Defragment(NAME, 0));
        if (round % 2 == 1) {
            volume->DropSnapshot(NAME + "@s");
        }
    }
    stop = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_TRUE(ReadAll(*volume, NAME) == content);
    volume.reset();
    RequireSound(memory.name);
}

} // namespace rawduck
