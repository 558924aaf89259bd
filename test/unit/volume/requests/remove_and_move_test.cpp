//! A database and its logs are removed, and get another name, together.

#include "support/hooked_device.hpp"
#include "support/test_support.hpp"
#include "support/volume_fixture.hpp"

#include <map>
#include <set>

namespace rawduck {

namespace {

constexpr uint32_t LBA = 512;

void Put(Volume &volume, const std::string &name, const std::string &bytes) {
    auto file = volume.Open(name, WriteMode(FileKind::DATABASE));
    file->Truncate(0);
    file->Append(bytes.data(), bytes.size());
    file->Sync();
}

using Content = std::map<std::string, std::string>;

Content ContentOf(Volume &volume) {
    Content content;
    for (const FileInfo &file : volume.Files()) {
        content[file.name] = ReadAll(volume, file.name);
    }
    return content;
}

std::string Refusal(ErrorCode expected, const std::function<void()> &action) {
    std::string text;
    EXPECT_EQ(FailureOf(action, &text), expected) << text;
    return text;
}

//! What is there after a cut at each event of `action`, which takes it from one of these to the other.
void RequireAllOrNothing(const Content &before, const std::function<void(Volume &)> &action,
                         const Content &after) {
    const SimulatedVolume simulated(LBA);
    uint64_t first = 0;
    {
        const auto volume = simulated.Mount();
        for (const auto &[name, bytes] : before) {
            Put(*volume, name, bytes);
        }
        const auto writer = volume->Open("writer", WriteMode()); // so that no checkpoint follows
        writer->Sync();
        first = simulated.medium->Events();
        action(*volume);
        Content now = ContentOf(*simulated.MountAfterCut());
        now.erase("writer");
        EXPECT_EQ(now, after) << "it is durable";
    }
    std::set<Content> seen;
    for (uint64_t event = first; event <= simulated.medium->Events(); event++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            PowerCutReport report;
            Content now = ContentOf(*simulated.MountMedium(simulated.medium->PowerCut(event, seed, report)));
            now.erase("writer");
            EXPECT_TRUE(now == before || now == after) << "event " << event << ", seed " << seed;
            seen.insert(std::move(now));
        }
    }
    EXPECT_EQ(seen.size(), 2u);
}

const std::string DATA(3000, 'd'), LOG(700, 'l');

} // namespace

TEST(RemoveAndMoveTest, ACutLeavesADatabaseWithItsLogUnderOneName) {
    RequireAllOrNothing({{"x.duckdb", DATA}, {"x.duckdb.wal", LOG}},
                        [](Volume &volume) { volume.Rename("x.duckdb", "y.duckdb", false); },
                        {{"y.duckdb", DATA}, {"y.duckdb.wal", LOG}});
}

TEST(RemoveAndMoveTest, ACutLeavesTheOldDatabaseOrTheNewOne) {
    RequireAllOrNothing(
        {{"x.duckdb", DATA}, {"x.duckdb.wal", LOG}, {"y.duckdb", LOG}, {"y.duckdb.wal", DATA}},
        [](Volume &volume) { volume.Rename("x.duckdb", "y.duckdb", true); },
        {{"y.duckdb", DATA}, {"y.duckdb.wal", LOG}});
    RequireAllOrNothing({{"x.duckdb", DATA}, {"y.duckdb", LOG}, {"y.duckdb.wal", DATA}},
                        [](Volume &volume) { volume.Rename("x.duckdb", "y.duckdb", true); },
                        {{"y.duckdb", DATA}});
}

TEST(RemoveAndMoveTest, ACutLeavesNoLogOfADatabaseThatIsGone) {
    RequireAllOrNothing({{"x.duckdb", DATA}, {"x.duckdb.wal", LOG}, {"other", LOG}},
                        [](Volume &volume) {
                            EXPECT_EQ(volume.RemoveWithLogs("x.duckdb"),
                                      (std::vector<std::string>{"x.duckdb", "x.duckdb.wal"}));
                        },
                        {{"other", LOG}});
}

TEST(RemoveAndMoveTest, SpaceIsFreeAgain) {
    const MemoryVolume memory(LBA);
    const auto volume = memory.Mount();
    Put(*volume, "kept", DATA);
    const uint64_t used = volume->Info().used_bytes;
    for (int i = 0; i < 3; i++) {
        Put(*volume, "x.duckdb", DATA);
        Put(*volume, "x.duckdb.wal", LOG);
        Put(*volume, "y.duckdb", DATA);
        Put(*volume, "y.duckdb.wal", LOG);
        volume->Rename("x.duckdb", "y.duckdb", true);
        volume->RemoveWithLogs("y.duckdb");
        EXPECT_EQ(volume->Info().used_bytes, used);
    }
    EXPECT_EQ(volume->Files().size(), 1u);
}

TEST(RemoveAndMoveTest, WhatSomebodyHasStays) {
    const MemoryVolume memory(LBA);
    const auto volume = memory.Mount();
    Put(*volume, "x.duckdb", DATA);
    Put(*volume, "x.duckdb.wal", LOG);
    Put(*volume, "y.duckdb", DATA);
    const Content before = ContentOf(*volume);
    for (const auto lock : {OpenMode::Lock::SHARED, OpenMode::Lock::EXCLUSIVE}) {
        OpenMode mode;
        mode.lock = lock;
        const auto attached = volume->Open("x.duckdb", mode);
        for (const char *name : {"x.duckdb", "x.duckdb.wal"}) {
            EXPECT_NE(Refusal(ErrorCode::LOCKED, [&] { volume->RemoveWithLogs(name); }).find("DETACH"),
                      std::string::npos);
            EXPECT_NE(Refusal(ErrorCode::LOCKED, [&] { volume->Rename(name, "z", true); }).find("DETACH"),
                      std::string::npos);
            Refusal(ErrorCode::LOCKED, [&] { volume->Rename("y.duckdb", name, true); });
        }
    }
    {
        const auto written = volume->Open("y.duckdb", WriteMode());
        Refusal(ErrorCode::LOCKED, [&] { volume->Rename("y.duckdb", "z", true); });
        Refusal(ErrorCode::LOCKED, [&] { volume->Rename("x.duckdb", "y.duckdb", true); });
    }
    EXPECT_EQ(ContentOf(*volume), before);
}

TEST(RemoveAndMoveTest, WhatIsRefused) {
    const MemoryVolume memory(LBA);
    const auto volume = memory.Mount();
    Put(*volume, "x.duckdb", DATA);
    Put(*volume, "x.duckdb.wal", LOG);
    Put(*volume, "y.duckdb", DATA);
    Put(*volume, "lost.duckdb.wal", LOG);
    volume->Snapshot("y.duckdb", "kept");
    const Content before = ContentOf(*volume);
    Refusal(ErrorCode::NOT_FOUND, [&] { volume->Rename("none", "z", false); });
    Refusal(ErrorCode::NOT_FOUND, [&] { volume->RemoveWithLogs("lost.duckdb"); });
    Refusal(ErrorCode::EXISTS, [&] { volume->Rename("x.duckdb", "y.duckdb", false); });
    EXPECT_NE(Refusal(ErrorCode::INVALID, [&] { volume->Rename("x.duckdb", "lost.duckdb", true); })
                  .find("lost.duckdb.wal"),
              std::string::npos);
    Refusal(ErrorCode::INVALID, [&] { volume->Rename("x.duckdb.wal", "x.duckdb", true); });
    Refusal(ErrorCode::INVALID, [&] { volume->Rename("x.duckdb", "x.duckdb.wal", true); });
    Refusal(ErrorCode::INVALID, [&] { volume->Rename("x.duckdb", "x.duckdb/y", true); });
    Refusal(ErrorCode::READ_ONLY, [&] { volume->Rename("y.duckdb@kept", "z", true); });
    Refusal(ErrorCode::READ_ONLY, [&] { volume->Rename("x.duckdb", "y.duckdb@kept", true); });
    Refusal(ErrorCode::READ_ONLY, [&] { volume->RemoveWithLogs("y.duckdb@kept"); });
    volume->Rename("x.duckdb", "x.duckdb", false);
    EXPECT_EQ(ContentOf(*volume), before);
}

} // namespace rawduck
