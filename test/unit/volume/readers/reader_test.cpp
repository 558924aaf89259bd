//! Readers beside the writer, in one process: what they see, what they keep, and whom the writer answers.

#include "common/error.hpp"
#include "support/test_support.hpp"
#include "support/volume_fixture.hpp"
#include "target/lock/reader_lock.hpp"
#include "target/lock/target_lock.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/reader_mounts.hpp"
#include "volume/readers/reader_channel.hpp"
#include "volume/readers/reader_service.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace rawduck {

namespace {

class ReaderTest : public testing::Test {
  protected:
    void SetUp() override {
        path_ = testing::TempDir() + "reader_" + std::to_string(getpid()) + "_" + std::to_string(counter_++);
        FormatOptions options;
        options.size_bytes = 32 * MIB;
        options.force = true;
        Volume::Format(path_, options);
    }
    void TearDown() override { unlink(path_.c_str()); }

    VolumePin Pin() const { return PinVolume(path_, MountOptions()); }
    VolumePin Latest(const void *owner = nullptr) const {
        return PinFor(path_, "x@latest", owner, MountOptions());
    }
    static void Put(Volume &volume, const std::string &bytes) {
        auto file = volume.Open("x", WriteMode());
        file->Truncate(0);
        file->Append(bytes.data(), bytes.size());
        file->Sync();
    }
    static size_t Kept(const Volume &volume) { return volume.Snapshots().size(); }
    static void AwaitNoneKept(const Volume &volume) {
        for (int i = 0; i < 10000 && Kept(volume) > 0; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(Kept(volume), 0u);
    }

    std::string path_;
    static inline int counter_ = 0;
};

} // namespace

TEST_F(ReaderTest, SeesWhatWasDurableWhenItBegan) {
    const VolumePin volume = Pin();
    const auto writer = volume->Open("other", WriteMode()); // keeps the volume open for writing
    Put(*volume, "first");
    {
        const VolumePin reader = Latest();
        Put(*volume, "second");
        EXPECT_EQ(ReadAll(*reader, "x@latest"), "first");
        EXPECT_EQ(ReadAll(*Latest(), "x@latest"), "first") << "of the same owner";
        EXPECT_EQ(ReadAll(*Latest(this), "x@latest"), "second") << "of another one";
        EXPECT_GE(Kept(*volume), 1u);
    }
    EXPECT_EQ(ReadAll(*Latest(), "x@latest"), "second") << "pinned anew";
    AwaitNoneKept(*volume);
}

TEST_F(ReaderTest, AnOpenFileKeepsItsInstant) {
    const VolumePin volume = Pin();
    const auto writer = volume->Open("other", WriteMode());
    Put(*volume, "first");
    auto file = OpenPinned(Latest(), "x@latest", OpenMode());
    Put(*volume, "second");
    EXPECT_EQ(ReadAll(*Latest(), "x@latest"), "first");
    file->Close();
    file.reset();
    EXPECT_EQ(ReadAll(*Latest(), "x@latest"), "second");
}

//! DuckDB looks at a database before it opens it. An instance that ends in between leaves nothing to the next one, which may
//! have its address.
TEST_F(ReaderTest, WhatWasLookedAtIsForItsOwnerAlone) {
    const VolumePin volume = Pin();
    const auto writer = volume->Open("other", WriteMode());
    const auto put = [&](const std::string &bytes) {
        volume->Open("x.duckdb", WriteMode(FileKind::DATABASE))->Write(bytes.data(), bytes.size(), 0);
    };
    bool is_gone = false;
    const auto latest = [&](PinUse use, bool of_another) {
        const OwnerIsGone owner_is_gone = [&is_gone, of_another] { return is_gone && !of_another; };
        const VolumePin pin = PinFor(path_, "x.duckdb@latest", this, MountOptions(), use, owner_is_gone);
        return ReadAll(*pin, "x.duckdb@latest");
    };
    put("first");
    EXPECT_EQ(latest(PinUse::LOOK, false), "first");
    put("other");
    EXPECT_EQ(latest(PinUse::LOOK, false), "first") << "as long as the owner is there";
    is_gone = true;
    EXPECT_EQ(latest(PinUse::OPEN, true), "other");
}

TEST_F(ReaderTest, CannotBeWrittenTo) {
    Put(*Pin(), "first");
    const VolumePin reader = Latest();
    std::string text;
    EXPECT_EQ(FailureOf([&] { reader->Open("x@latest", WriteMode()); }, &text), ErrorCode::READ_ONLY);
    EXPECT_NE(text.find("READ_ONLY"), std::string::npos) << text;
    EXPECT_EQ(FailureOf([&] { reader->Open("y", WriteMode()); }), ErrorCode::READ_ONLY);
    EXPECT_EQ(FailureOf([&] { reader->Clone("x@latest", "y"); }), ErrorCode::READ_ONLY);
    EXPECT_EQ(FailureOf([&] { reader->Trim(); }), ErrorCode::READ_ONLY);
    EXPECT_FALSE(reader->Info().writable);
}

TEST_F(ReaderTest, OfWhatIsNotThereOrNotDurable) {
    const VolumePin volume = Pin();
    EXPECT_EQ(FailureOf([&] { Latest(); }), ErrorCode::NOT_FOUND);
    const auto writer = volume->Open("x", WriteMode());
    EXPECT_EQ(FailureOf([&] { Latest(); }), ErrorCode::INVALID);
    const MemoryVolume memory(4096);
    std::string text;
    EXPECT_EQ(FailureOf([&] { PinFor(memory.name, "x@latest", nullptr, MountOptions()); }, &text),
              ErrorCode::UNSUPPORTED);
    EXPECT_NE(text.find("nvme_snapshot"), std::string::npos) << text;
}

TEST_F(ReaderTest, WhereNobodyMayWriteItKeepsWritersOut) {
    Put(*Pin(), "first");
    const VolumePin volume = Pin();
    // Another process that reads: it keeps this one from making a snapshot.
    const TargetLock other(ResolveTarget(path_), TargetLock::Mode::SHARED);
    {
        const VolumePin reader = Latest();
        EXPECT_EQ(ReadAll(*reader, "x@latest"), "first");
        EXPECT_EQ(Kept(*volume), 0u);
        OpenMode mode = WriteMode();
        mode.lock = OpenMode::Lock::EXCLUSIVE;
        EXPECT_EQ(FailureOf([&] { volume->Open("x", mode); }), ErrorCode::LOCKED);
    }
}

TEST_F(ReaderTest, WhatIsLeftGoesWithTheNextWriter) {
    Put(*Pin(), "first");
    uint64_t number = 0;
    {
        const ReaderLock lock(ResolveTarget(path_));
        number = lock.Number();
        Pin()->BeginReader("x@latest", number);
        EXPECT_EQ(Kept(*Pin()), 1u);
        Put(*Pin(), "second");
        EXPECT_EQ(Kept(*Pin()), 1u) << "the byte is locked";
        EXPECT_EQ(FailureOf([&] { Pin()->DropSnapshot("x@" + ReaderSnapshot(number)); }), ErrorCode::LOCKED);
        std::string text;
        EXPECT_EQ(FailureOf([&] { Volume::Format(path_, FormatOptions()); }, &text), ErrorCode::LOCKED);
        EXPECT_NE(text.find("latest"), std::string::npos) << text;
    }
    const VolumePin volume = Pin();
    const auto writer = volume->Open("other", WriteMode());
    AwaitNoneKept(*volume);
}

TEST_F(ReaderTest, NamesOfReadersAreReserved) {
    EXPECT_EQ(ReaderSnapshot(42), "latest-00000000002a");
    EXPECT_EQ(ReaderOf("latest-00000000002a"), std::optional<uint64_t>(42));
    for (const char *other : {"", "latest", "latest-", "latest-2a", "latest-00000000002A",
                              "latest-00000000002g", "latest-00000000002a.wal", "monday"}) {
        EXPECT_EQ(ReaderOf(other), std::nullopt) << other;
    }
    for (const char *reserved : {"latest", "latest-1"}) {
        EXPECT_EQ(FailureOf([&] { CheckSnapshotName(reserved); }), ErrorCode::INVALID) << reserved;
    }
    EXPECT_EQ(SourceOfReader("x@latest"), "x");
    EXPECT_EQ(SourceOfReader("x@monday"), "x@monday");
}

TEST_F(ReaderTest, OnlyWhoHasTheTargetIsAnswered) {
    const VolumePin volume = Pin();
    Put(*volume, "first");
    const auto writer = volume->Open("other", WriteMode());
    const Target target = ResolveTarget(path_);
    const ReaderLock lock(target);
    const WriterRequest request{WriterRequest::Kind::READ, lock.Number(), "x@latest", ""};
    const auto code = [&](int descriptor, const WriterRequest &asked) {
        return FailureOf([&] { AskWriter(target, descriptor, asked); });
    };
    for (const int flags : {O_WRONLY, O_PATH}) {
        const FileDescriptor unfit(open(path_.c_str(), flags));
        EXPECT_EQ(code(unfit.Get(), request), ErrorCode::LOCKED) << "it does not answer";
    }
    const FileDescriptor another(open("/dev/null", O_RDONLY));
    EXPECT_EQ(code(another.Get(), request), ErrorCode::LOCKED);
    EXPECT_EQ(code(lock.Descriptor(), {WriterRequest::Kind::READ, ReaderBytes::COUNT, "x@latest", ""}),
              ErrorCode::LOCKED);
    const uint64_t not_locked = (lock.Number() + 1) % ReaderBytes::COUNT;
    EXPECT_EQ(code(lock.Descriptor(), {WriterRequest::Kind::READ, not_locked, "x@latest", ""}),
              ErrorCode::LOCKED)
        << "its snapshot would be dropped at once";
    EXPECT_EQ(code(lock.Descriptor(), {static_cast<WriterRequest::Kind>(99), 0, "x", ""}),
              ErrorCode::UNSUPPORTED);
    EXPECT_EQ(code(lock.Descriptor(), {WriterRequest::Kind::READ, lock.Number(), "nothing@latest", ""}),
              ErrorCode::NOT_FOUND);
    EXPECT_EQ(code(lock.Descriptor(), {WriterRequest::Kind::READ, lock.Number(), "x", ""}), ErrorCode::LOCKED)
        << "it is no snapshot";
    EXPECT_TRUE(AskWriter(target, lock.Descriptor(), request).has_value());
}

TEST_F(ReaderTest, OneTooManyIsToldSo) {
    rlimit descriptors{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
    const rlimit before = descriptors;
    descriptors.rlim_cur = std::min<rlim_t>(descriptors.rlim_max, 4 * ReaderService::READERS_MAX);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
    const Target target = ResolveTarget(path_);
    const ReaderLock lock(target);
    const auto ask = [&](WriterRequest::Kind kind) {
        return AskWriter(target, lock.Descriptor(), {kind, lock.Number(), "x@latest", ""});
    };
    ReaderService service(target, {[](const WriterRequest &) { return std::string("answer"); }, [] {}});
    service.Start();
    std::vector<WriterAnswer> readers;
    while (readers.size() < ReaderService::READERS_MAX) {
        std::optional<WriterAnswer> answer = ask(WriterRequest::Kind::READ);
        ASSERT_TRUE(answer.has_value());
        readers.push_back(std::move(*answer));
    }
    std::string text;
    EXPECT_EQ(FailureOf([&] { ask(WriterRequest::Kind::READ); }, &text), ErrorCode::LOCKED);
    EXPECT_NE(text.find("500 readers"), std::string::npos) << text;
    EXPECT_TRUE(ask(WriterRequest::Kind::DESCRIBE).has_value());
    readers.pop_back();
    std::optional<WriterAnswer> last;
    for (int i = 0; i < 1000 && !last; i++) { // once the service has seen that one go
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        try {
            last = ask(WriterRequest::Kind::READ);
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::LOCKED);
        }
    }
    EXPECT_TRUE(last.has_value());
    service.Stop();
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// It has made the snapshot, and the reader does not know.
TEST_F(ReaderTest, AWriterThatEndsBeforeItAnswersIsFollowedByTheNext) {
    Put(*Pin(), "first");
    const Target target = ResolveTarget(path_);
    FileDescriptor listener = ListenForReaders(target);
    ASSERT_TRUE(listener.IsOpen());
    std::thread writer([&] {
        const FileDescriptor connection(accept(listener.Get(), nullptr, nullptr));
        std::optional<WriterRequest> request;
        for (int i = 0; i < 10000 && !request; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            request = ReceiveRequest(connection.Get(), target);
        }
        listener = FileDescriptor();
        if (request) {
            Pin()->BeginReader("x@latest", request->number);
        }
    });
    EXPECT_EQ(ReadAll(*Latest(), "x@latest"), "first");
    writer.join();
}

TEST_F(ReaderTest, ManyBeginAndEndWhileOthersWrite) {
    const VolumePin volume = Pin();
    Put(*volume, std::string(50000, 'a'));
    const auto writer = volume->Open("other", WriteMode());
    std::vector<std::thread> threads;
    std::atomic<bool> stop{false};
    threads.emplace_back([&] {
        for (int i = 0; i < 200; i++) {
            Put(*volume, std::string(50000, static_cast<char>('a' + i % 26)));
        }
        stop = true;
    });
    for (int reader = 0; reader < 3; reader++) {
        threads.emplace_back([&, reader] {
            while (!stop) {
                // Truncated and written again, so it is empty, or of one letter.
                const std::string content = ReadAll(*Latest(&threads + reader), "x@latest");
                EXPECT_EQ(content, std::string(content.size(), content.empty() ? ' ' : content[0]));
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    AwaitNoneKept(*volume);
}

} // namespace rawduck
