//! Snapshots sent from one volume to another: what arrives, what is read for it, and what is refused.

#include "volume/backup/streams.hpp"
#include "volume/check.hpp"

namespace rawduck {

namespace {

constexpr uint64_t BLOCK = 256 * KIB;

void WriteAt(const std::string &target, const std::string &name, const std::string &bytes, uint64_t offset) {
    const VolumePin volume = PinVolume(target, MountOptions());
    const auto file = volume->Open(name, WriteMode(FileKind::DATABASE));
    file->Write(bytes.data(), bytes.size(), offset);
    file->Close();
}

void Snapshot(const std::string &target, const std::string &file, const std::string &name) {
    PinVolume(target, MountOptions())->Snapshot(file, name);
}

std::string Content(const std::string &target, const std::string &name) {
    return ReadAll(*PinVolume(target, MountOptions()), name);
}

bool Exists(const std::string &target, const std::string &name) {
    return PinVolume(target, MountOptions())->FileExists(name);
}

uint64_t ReadBytes(const std::string &target) {
    return PinVolume(target, MountOptions())->Stats().Snapshot(IoOperation::READ).bytes;
}

//! A volume to send from, with x.duckdb@monday and x.duckdb@tuesday, and one to receive on.
class SendReceiveTest : public ::testing::TestWithParam<uint32_t> {
  protected:
    SendReceiveTest() : from(GetParam()), to(GetParam() == 512 ? 4096 : 512) {
        monday = RandomBytes(random, 12288 + 20 * BLOCK);
        WriteAt(from.name, "x.duckdb", monday, 0);
        WriteAt(from.name, "x.duckdb.wal", "a log of monday", 0);
        Snapshot(from.name, "x.duckdb", "monday");
        tuesday = monday;
        const std::string block = RandomBytes(random, BLOCK);
        tuesday.replace(12288 + 7 * BLOCK, BLOCK, block);
        WriteAt(from.name, "x.duckdb", block, 12288 + 7 * BLOCK);
        WriteAt(from.name, "x.duckdb.wal", "a longer log of tuesday", 0);
        Snapshot(from.name, "x.duckdb", "tuesday");
    }
    void RequireNothing() {
        EXPECT_FALSE(Exists(to.name, "copy.duckdb"));
        EXPECT_FALSE(Exists(to.name, "copy.duckdb@monday"));
        EXPECT_FALSE(Exists(to.name, "copy.duckdb.wal"));
    }
    std::mt19937_64 random{1};
    MemoryVolume from, to;
    std::string monday, tuesday;
};

} // namespace

TEST_P(SendReceiveTest, InFullAndThenWhatChanged) {
    const std::string full = Sent(from.name, "x.duckdb@monday");
    EXPECT_EQ(Receive(to.name, "copy.duckdb", full), monday.size() + 15);
    EXPECT_EQ(Content(to.name, "copy.duckdb"), monday);
    EXPECT_EQ(Content(to.name, "copy.duckdb@monday"), monday);
    EXPECT_EQ(Content(to.name, "copy.duckdb@monday.wal"), "a log of monday");

    const std::string changes = Sent(from.name, "x.duckdb@tuesday", {"monday", ""});
    EXPECT_LT(changes.size(), BLOCK + 4096);
    EXPECT_EQ(Receive(to.name, "copy.duckdb", changes), BLOCK + 23);
    EXPECT_EQ(Content(to.name, "copy.duckdb"), tuesday);
    EXPECT_EQ(Content(to.name, "copy.duckdb.wal"), "a longer log of tuesday");
    EXPECT_EQ(Content(to.name, "copy.duckdb@tuesday"), tuesday);
    EXPECT_EQ(Content(to.name, "copy.duckdb@monday"), monday);
    for (const FileInfo &file : PinVolume(to.name, MountOptions())->Files()) {
        EXPECT_EQ(file.name.find("receiving"), std::string::npos) << file.name;
    }
    EXPECT_EQ(PinVolume(to.name, MountOptions())->Snapshots().size(), 2u);
    RequireSound(to.name);
    EXPECT_EQ(
        FailureOf([&] { PinVolume(to.name, MountOptions())->DropSnapshot("copy.duckdb@monday.origin"); }),
        ErrorCode::NOT_FOUND);
    PinVolume(to.name, MountOptions())->DropSnapshot("copy.duckdb@monday");
    PinVolume(to.name, MountOptions())->DropSnapshot("copy.duckdb@tuesday");
    EXPECT_EQ(PinVolume(to.name, MountOptions())->Files().size(), 2u);
    RequireSound(to.name);
}

TEST_P(SendReceiveTest, OnlyWhatChangedIsRead) {
    const VolumePin pin = PinVolume(from.name, MountOptions());
    const uint64_t before = ReadBytes(from.name);
    Sent(from.name, "x.duckdb@tuesday", {"monday", ""});
    EXPECT_LE(ReadBytes(from.name) - before, BLOCK + 64 * KIB);
    EXPECT_GE(ReadBytes(from.name) - before, BLOCK);
}

// A snapshot that was received is the one that was sent: a third volume takes what changed from either.
TEST_P(SendReceiveTest, FromACopyOfTheCopy) {
    Receive(to.name, "copy.duckdb", Sent(from.name, "x.duckdb@monday"));
    const MemoryVolume third(512);
    Receive(third.name, "z.duckdb", Sent(to.name, "copy.duckdb@monday"));
    Receive(third.name, "z.duckdb", Sent(from.name, "x.duckdb@tuesday", {"monday", ""}));
    EXPECT_EQ(Content(third.name, "z.duckdb"), tuesday);
    Receive(to.name, "copy.duckdb", Sent(third.name, "z.duckdb@tuesday", {"monday", ""}));
    EXPECT_EQ(Content(to.name, "copy.duckdb"), tuesday);
}

TEST_P(SendReceiveTest, AnotherBaseIsRefused) {
    WriteAt(to.name, "copy.duckdb", monday, 0);
    Snapshot(to.name, "copy.duckdb", "monday"); // of that name, and even with the same bytes
    const std::string changes = Sent(from.name, "x.duckdb@tuesday", {"monday", ""});
    std::string text;
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", changes, true); }, &text), ErrorCode::INVALID);
    EXPECT_NE(text.find("none of the snapshots of \"copy.duckdb\" here is that one (monday)"),
              std::string::npos)
        << text;
    EXPECT_EQ(Content(to.name, "copy.duckdb"), monday);
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "other.duckdb", changes); }), ErrorCode::INVALID);
    EXPECT_FALSE(Exists(to.name, "other.duckdb"));
}

TEST_P(SendReceiveTest, WhatChangedAtTheReceiverIsNotLost) {
    Receive(to.name, "copy.duckdb", Sent(from.name, "x.duckdb@monday"));
    const std::string changes = Sent(from.name, "x.duckdb@tuesday", {"monday", ""});
    for (const char *name : {"copy.duckdb", "copy.duckdb.wal"}) {
        const std::string was = Content(to.name, name);
        WriteAt(to.name, name, "!", was.size() - 1);
        std::string text;
        EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", changes); }, &text), ErrorCode::INVALID);
        EXPECT_NE(text.find("has changed since it was monday"), std::string::npos) << text;
        WriteAt(to.name, name, was.substr(was.size() - 1), was.size() - 1);
    }
    // The blocks were written anew, but they are the same.
    Receive(to.name, "copy.duckdb", changes);
    EXPECT_EQ(Content(to.name, "copy.duckdb"), tuesday);
    RequireSound(to.name);
}

TEST_P(SendReceiveTest, WhatIsThereIsNotReplaced) {
    const std::string full = Sent(from.name, "x.duckdb@monday");
    WriteAt(to.name, "copy.duckdb.wal", "somebody's", 0);
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", full); }), ErrorCode::EXISTS);
    WriteAt(to.name, "copy.duckdb", "somebody's", 0);
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", full); }), ErrorCode::EXISTS);
    EXPECT_EQ(Content(to.name, "copy.duckdb"), "somebody's");
    Receive(to.name, "copy.duckdb", full, true);
    EXPECT_EQ(Content(to.name, "copy.duckdb"), monday);
    EXPECT_EQ(Content(to.name, "copy.duckdb.wal"), "a log of monday");
    std::string text;
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", full, true); }, &text), ErrorCode::EXISTS);
    EXPECT_NE(text.find("there is nothing to receive"), std::string::npos) << text;
    RequireSound(to.name);
}

// A restore onto the volume that the backup came from, whose snapshots are there.
TEST_P(SendReceiveTest, BackToASnapshotThatIsThere) {
    const std::string full = Sent(from.name, "x.duckdb@monday");
    const std::string changes = Sent(from.name, "x.duckdb@tuesday", {"monday", ""});
    std::string text;
    EXPECT_EQ(FailureOf([&] { Receive(from.name, "x.duckdb", changes); }, &text), ErrorCode::EXISTS);
    EXPECT_NE(text.find("there is nothing to receive"), std::string::npos) << text;
    WriteAt(from.name, "x.duckdb", "an accident", 12288);
    for (const std::string &stream : {full, changes}) {
        EXPECT_EQ(FailureOf([&] { Receive(from.name, "x.duckdb", stream); }, &text), ErrorCode::EXISTS);
        EXPECT_NE(text.find("has changed since. To give that up, pass overwrite"), std::string::npos) << text;
    }
    Receive(from.name, "x.duckdb", changes, true);
    EXPECT_EQ(Content(from.name, "x.duckdb"), tuesday);
    Receive(from.name, "x.duckdb", full, true);
    EXPECT_EQ(Content(from.name, "x.duckdb"), monday);
    EXPECT_EQ(Content(from.name, "x.duckdb.wal"), "a log of monday");
    const VolumePin volume = PinVolume(from.name, MountOptions());
    volume->Remove("x.duckdb");
    volume->Remove("x.duckdb.wal");
    Receive(from.name, "x.duckdb", changes);
    EXPECT_EQ(Content(from.name, "x.duckdb"), tuesday);
    EXPECT_EQ(Content(from.name, "x.duckdb.wal"), "a longer log of tuesday");
    EXPECT_EQ(Content(from.name, "x.duckdb@monday"), monday);
    EXPECT_EQ(volume->Files().size(), 6u);
    // They are still the snapshots that they were.
    Receive(to.name, "copy.duckdb", Sent(from.name, "x.duckdb@monday"));
    Receive(to.name, "copy.duckdb", changes);
    EXPECT_EQ(Content(to.name, "copy.duckdb"), tuesday);
    RequireSound(from.name);
}

// Cut off anywhere nothing has the name, and what came is not sent again.
TEST_P(SendReceiveTest, GoesOnWhereItWasCutOff) {
    const std::string full = Sent(from.name, "x.duckdb@monday");
    for (const size_t cut : Boundaries(full)) {
        for (const size_t end : {cut, cut + 1, cut + STREAM_HEADER_BYTES + 7}) {
            if (end >= full.size()) {
                continue;
            }
            EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", full.substr(0, end)); }),
                      ErrorCode::CORRUPT);
            RequireNothing();
            const VolumePin volume = PinVolume(to.name, MountOptions());
            const std::optional<Origin> part = FindReceived(*volume, "copy.duckdb");
            if (!part) {
                EXPECT_EQ(cut, 0u);
                continue;
            }
            const std::string rest =
                Sent(from.name, "x.duckdb@monday", {"", ResumeToken(part->header, part->reached)});
            EXPECT_LE(rest.size(), full.size() - cut + 4096);
            Receive(to.name, "copy.duckdb", rest);
            EXPECT_EQ(Content(to.name, "copy.duckdb"), monday);
            EXPECT_EQ(Content(to.name, "copy.duckdb.wal"), "a log of monday");
            volume->DropSnapshot("copy.duckdb@monday");
            volume->Remove("copy.duckdb");
            volume->Remove("copy.duckdb.wal");
        }
    }
    EXPECT_EQ(PinVolume(to.name, MountOptions())->Files().size(), 0u);
    RequireSound(to.name);
}

TEST_P(SendReceiveTest, AnotherStreamDoesNotGoOn) {
    const std::string full = Sent(from.name, "x.duckdb@monday");
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", full.substr(0, full.size() / 2)); }),
              ErrorCode::CORRUPT);
    std::string text;
    const std::string other = Sent(from.name, "x.duckdb@tuesday");
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", other); }, &text), ErrorCode::EXISTS);
    EXPECT_NE(text.find("--abort"), std::string::npos) << text;
    const VolumePin volume = PinVolume(to.name, MountOptions());
    const Origin part = *FindReceived(*volume, "copy.duckdb");
    const std::string token = ResumeToken(part.header, part.reached);
    EXPECT_EQ(FailureOf([&] { Sent(from.name, "x.duckdb@tuesday", {"", token}); }), ErrorCode::INVALID);
    EXPECT_EQ(FailureOf([&] { Sent(from.name, "x.duckdb@monday", {"", token + "0"}); }), ErrorCode::INVALID);
    // All of it once more is not written once more.
    EXPECT_EQ(Receive(to.name, "copy.duckdb", full), monday.size() + 15 - 2 * MIB);
    volume->DropSnapshot("copy.duckdb@monday");
    volume->Remove("copy.duckdb");
    const std::string rest = Sent(from.name, "x.duckdb@monday", {"", token});
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", rest, true); }, &text), ErrorCode::INVALID);
    EXPECT_NE(text.find("send it from its start"), std::string::npos) << text;
    EXPECT_FALSE(GiveUpReceived(*volume, "copy.duckdb"));
}

TEST_P(SendReceiveTest, EveryByteCounts) {
    const std::string changes = Sent(from.name, "x.duckdb@tuesday", {"monday", ""});
    Receive(to.name, "copy.duckdb", Sent(from.name, "x.duckdb@monday"));
    const VolumePin volume = PinVolume(to.name, MountOptions());
    const auto before = Contents(*volume);
    std::vector<size_t> places;
    for (const size_t boundary : Boundaries(changes)) {
        for (size_t at = boundary; at < std::min(boundary + STREAM_HEADER_BYTES + 40, changes.size()); at++) {
            places.push_back(at);
        }
    }
    for (int i = 0; i < 100; i++) {
        places.push_back(random() % changes.size());
    }
    for (const size_t at : places) {
        std::string spoiled = changes;
        spoiled[at] = static_cast<char>(spoiled[at] ^ 1 << random() % 8);
        std::string text;
        const ErrorCode code = FailureOf([&] { Receive(to.name, "copy.duckdb", spoiled); }, &text);
        EXPECT_EQ(code, ErrorCode::CORRUPT) << at << ": " << text;
        EXPECT_EQ(Contents(*volume), before) << at;
        GiveUpReceived(*volume, "copy.duckdb");
    }
    EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", changes + "x"); }), ErrorCode::CORRUPT);
    Receive(to.name, "copy.duckdb", changes);
    EXPECT_EQ(Content(to.name, "copy.duckdb"), tuesday);
}

TEST_P(SendReceiveTest, RecordsInAnotherOrderAreRefused) {
    const std::string full = Sent(from.name, "x.duckdb@monday");
    const std::vector<size_t> at = Boundaries(full);
    const auto record = [&](size_t i) { return full.substr(at[i], at[i + 1] - at[i]); };
    const std::string swapped = record(0) + record(2) + record(1) + full.substr(at[3]);
    const std::string missing = record(0) + record(1) + full.substr(at[3]);
    const std::string other = record(0) + record(1) + Sent(from.name, "x.duckdb@monday").substr(at[2]);
    for (const std::string &stream : {swapped, missing, other, full + full}) {
        EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", stream); }), ErrorCode::CORRUPT);
        RequireNothing();
    }
}

TEST_P(SendReceiveTest, NoRoomIsSaidBefore) {
    const MemoryVolume small(512, 16 * MIB);
    WriteAt(small.name, "f", std::string(9 * MIB, 'f'), 0);
    const std::string full = Sent(from.name, "x.duckdb@monday");
    EXPECT_EQ(FailureOf([&] { Receive(small.name, "copy.duckdb", full); }), ErrorCode::NO_SPACE);
    EXPECT_EQ(PinVolume(small.name, MountOptions())->Files().size(), 1u);
}

TEST_P(SendReceiveTest, OnlySnapshotsAreSent) {
    EXPECT_EQ(FailureOf([&] { Sent(from.name, "x.duckdb"); }), ErrorCode::INVALID);
    EXPECT_EQ(FailureOf([&] { Sent(from.name, "x.duckdb@friday"); }), ErrorCode::NOT_FOUND);
    EXPECT_EQ(FailureOf([&] { Sent(from.name, "x.duckdb@tuesday", {"friday", ""}); }), ErrorCode::NOT_FOUND);
    WriteAt(from.name, "y@z", "no snapshot", 0);
    EXPECT_EQ(FailureOf([&] { Sent(from.name, "y@z"); }), ErrorCode::INVALID);
    for (const char *name : {"copy.duckdb@x", "copy.duckdb.wal"}) {
        EXPECT_EQ(FailureOf([&] { Receive(to.name, name, Sent(from.name, "x.duckdb@monday")); }),
                  ErrorCode::INVALID);
    }
}

INSTANTIATE_TEST_SUITE_P(LbaSizes, SendReceiveTest, ::testing::Values(512u, 4096u));

} // namespace rawduck
