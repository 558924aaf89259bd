//! What others do with the names while a stream is received, or between two parts of one: nothing of theirs is lost, and nothing of
//! theirs becomes part of what was sent.

#include "volume/backup/streams.hpp"

#include <thread>

namespace rawduck {

namespace {

class ReceiveMeanwhileTest : public ::testing::Test {
  protected:
    ReceiveMeanwhileTest() {
        Write(from, "x.duckdb", monday);
        Write(from, "x.duckdb.wal", "a log");
        from_volume->Snapshot("x.duckdb", "monday");
        tuesday.replace(100000, 1500000, std::string(1500000, 't'));
        Write(from, "x.duckdb", tuesday);
        from_volume->Snapshot("x.duckdb", "tuesday");
        full = Sent(from.name, "x.duckdb@monday");
        changes = Sent(from.name, "x.duckdb@tuesday", {"monday", ""});
    }
    static void Write(const MemoryVolume &volume, const std::string &name, const std::string &bytes) {
        const auto file = PinVolume(volume.name, MountOptions())->Open(name, WriteMode(FileKind::DATABASE));
        file->Write(bytes.data(), bytes.size(), 0);
        file->Close();
    }
    std::unique_ptr<Receiver> Receiving(const std::string &stream, bool overwrite = false) {
        return std::make_unique<Receiver>(
            std::make_unique<StringSource>(stream),
            std::make_unique<VolumeDestination>(VolumePin(volume), "copy.duckdb", overwrite));
    }
    //! Of the stream; what comes is kept.
    void ReceiveCut(const std::string &stream, size_t records) {
        EXPECT_EQ(FailureOf([&] {
                      Receive(to.name, "copy.duckdb", stream.substr(0, Boundaries(stream)[records]));
                  }),
                  ErrorCode::CORRUPT);
    }
    std::string Content(const std::string &name) { return ReadAll(*volume, name); }

    std::string monday = std::string(3000000, 'm'), tuesday = monday, full, changes;
    const MemoryVolume from{512}, to{512};
    const VolumePin from_volume = PinVolume(from.name, MountOptions()),
                    volume = PinVolume(to.name, MountOptions());
};

void Finish(Receiver &receiver) {
    while (receiver.ReceivePiece()) {
    }
}

} // namespace

TEST_F(ReceiveMeanwhileTest, FilesOfThoseNamesStay) {
    for (const char *name :
         {"copy.duckdb.receiving", "copy.duckdb.receiving.wal.recovery", "copy.duckdb.receiving.origin"}) {
        Write(to, name, "somebody's own");
        std::string text;
        EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", full, true); }, &text), ErrorCode::EXISTS);
        EXPECT_NE(text.find(std::string("\"") + name + "\" is not what a receive"), std::string::npos)
            << text;
        EXPECT_EQ(FailureOf([&] { GiveUpReceived(*volume, "copy.duckdb"); }), ErrorCode::EXISTS);
        EXPECT_EQ(Content(name), "somebody's own");
        EXPECT_EQ(volume->Files().size(), 1u);
        volume->Remove(name);
    }
    Receive(to.name, "copy.duckdb", full);
    EXPECT_EQ(Content("copy.duckdb"), monday);
}

TEST_F(ReceiveMeanwhileTest, NobodyWritesToWhatIsKept) {
    Receive(to.name, "copy.duckdb", full);
    Write(to, "other", "somebody's own");
    ReceiveCut(changes, 2);
    for (const char *name : {"copy.duckdb.receiving", "copy.duckdb.receiving.wal"}) {
        std::string text;
        EXPECT_EQ(FailureOf([&] { Write(to, name, "!"); }, &text), ErrorCode::READ_ONLY);
        EXPECT_NE(text.find("receive --abort"), std::string::npos) << text;
        EXPECT_EQ(FailureOf([&] { volume->Move("other", name); }), ErrorCode::READ_ONLY);
    }
    const std::string kept = "copy.duckdb.receiving";
    EXPECT_EQ(FailureOf([&] { volume->Clone("other", kept); }), ErrorCode::EXISTS);
    EXPECT_EQ(FailureOf([&] { Write(to, kept + ".wal.recovery", "!"); }), ErrorCode::READ_ONLY);
    Receive(to.name, "copy.duckdb", changes);
    EXPECT_EQ(Content("copy.duckdb"), tuesday);
    EXPECT_EQ(Content("copy.duckdb@tuesday"), tuesday);
}

// What was removed of it has to be sent again, and nobody takes what is left for all.
TEST_F(ReceiveMeanwhileTest, WhatWasRemovedIsSentAgain) {
    for (const char *name : {"copy.duckdb.receiving", "copy.duckdb.receiving.wal"}) {
        Receive(to.name, "copy.duckdb", full);
        ReceiveCut(changes, 3);
        const Origin part = *FindReceived(*volume, "copy.duckdb");
        const std::string rest =
            Sent(from.name, "x.duckdb@tuesday", {"monday", ResumeToken(part.header, part.reached)});
        volume->Remove(name);
        EXPECT_EQ(FindReceived(*volume, "copy.duckdb")->reached, StreamPosition());
        EXPECT_EQ(FailureOf([&] { Receive(to.name, "copy.duckdb", rest); }), ErrorCode::INVALID);
        Receive(to.name, "copy.duckdb", changes);
        EXPECT_EQ(Content("copy.duckdb"), tuesday);
        EXPECT_EQ(Content("copy.duckdb.wal"), "a log");
        for (const char *made : {"copy.duckdb@monday", "copy.duckdb@tuesday"}) {
            volume->DropSnapshot(made);
        }
        volume->Remove("copy.duckdb");
        volume->Remove("copy.duckdb.wal");
        EXPECT_EQ(volume->Files().size(), 0u);
    }
}

TEST_F(ReceiveMeanwhileTest, WhatWasMadeMeanwhileIsNotReplaced) {
    for (const char *name : {"copy.duckdb", "copy.duckdb.wal", "copy.duckdb.wal.recovery"}) {
        for (const bool locked : {true, false}) {
            const auto receiver = Receiving(full);
            receiver->ReceivePiece();
            OpenMode mode = WriteMode(FileKind::DATABASE);
            mode.lock = locked ? OpenMode::Lock::EXCLUSIVE : OpenMode::Lock::NONE;
            auto file = volume->Open(name, mode);
            file->Write("somebody's own", 14, 0);
            file->Sync();
            std::string text;
            EXPECT_EQ(FailureOf([&] { Finish(*receiver); }, &text), ErrorCode::EXISTS);
            EXPECT_NE(text.find("was made by somebody else meanwhile"), std::string::npos) << text;
            EXPECT_EQ(Content(name), "somebody's own");
            EXPECT_FALSE(volume->FileExists("copy.duckdb@monday"));
            file->Close();
            volume->Remove(name);
        }
    }
    volume->MakeDirectory("copy.duckdb");
    EXPECT_EQ(FailureOf([&] { Finish(*Receiving(full, true)); }), ErrorCode::EXISTS);
    volume->RemoveDirectory("copy.duckdb", false);
    EXPECT_EQ(Receive(to.name, "copy.duckdb", full), 0u); // all of it was kept
    EXPECT_EQ(Content("copy.duckdb"), monday);
}

TEST_F(ReceiveMeanwhileTest, OneAtATime) {
    Receive(to.name, "copy.duckdb", full);
    const auto first = Receiving(changes);
    first->ReceivePiece();
    first->ReceivePiece();
    for (const std::string &stream : {changes, Sent(from.name, "x.duckdb@tuesday")}) {
        EXPECT_EQ(FailureOf([&] { Finish(*Receiving(stream, true)); }), ErrorCode::LOCKED);
    }
    EXPECT_EQ(FailureOf([&] { GiveUpReceived(*volume, "copy.duckdb"); }), ErrorCode::LOCKED);
    Finish(*first);
    EXPECT_EQ(Content("copy.duckdb"), tuesday);
    EXPECT_EQ(Content("copy.duckdb@tuesday"), tuesday);
}

TEST_F(ReceiveMeanwhileTest, ManyAtOnceMakeOne) {
    for (int round = 0; round < 20; round++) {
        Receive(to.name, "copy.duckdb", full);
        std::vector<std::thread> threads;
        std::atomic<int> made{0};
        for (int i = 0; i < 3; i++) {
            threads.emplace_back([&] {
                try {
                    Receive(to.name, "copy.duckdb", changes);
                    made++;
                } catch (const Error &error) {
                    EXPECT_TRUE(error.Code() == ErrorCode::LOCKED || error.Code() == ErrorCode::EXISTS)
                        << error.what();
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        EXPECT_LE(made, 1);
        if (made == 0) {
            Receive(to.name, "copy.duckdb", changes);
        }
        ASSERT_EQ(Content("copy.duckdb"), tuesday);
        ASSERT_EQ(volume->Files().size(), 2u + 3 + 3);
        for (const char *snapshot : {"copy.duckdb@monday", "copy.duckdb@tuesday"}) {
            volume->DropSnapshot(snapshot);
        }
        volume->Remove("copy.duckdb");
        volume->Remove("copy.duckdb.wal");
    }
}

TEST_F(ReceiveMeanwhileTest, RemovedUnderTheReceiverIsAnError) {
    const auto receiver = Receiving(full);
    receiver->ReceivePiece();
    volume->Remove("copy.duckdb.receiving.origin");
    EXPECT_EQ(FailureOf([&] { Finish(*receiver); }), ErrorCode::NOT_FOUND);
    EXPECT_FALSE(volume->FileExists("copy.duckdb"));
}

} // namespace rawduck
