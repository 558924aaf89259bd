//! Requests while those who have the volume open come and go: none fails for that, and none is done twice.

#include "common/error.hpp"
#include "support/test_support.hpp"
#include "support/volume_fixture.hpp"
#include "target/lock/target_lock.hpp"
#include "volume/requests/here_or_ask.hpp"

#include <optional>
#include <sys/socket.h>

namespace rawduck {

namespace {

using Kind = WriterRequest::Kind;

class HereOrAskTest : public testing::Test {
  protected:
    void SetUp() override {
        path_ = testing::TempDir() + "here_" + std::to_string(getpid()) + "_" + std::to_string(counter_++);
        FormatOptions options;
        options.size_bytes = 32 * MIB;
        options.force = true;
        Volume::Format(path_, options);
        const VolumePin volume = Pin();
        for (const char *name : {"x", "other"}) {
            auto file = volume->Open(name, WriteMode());
            file->Append(name, 1);
            file->Sync();
        }
    }
    void TearDown() override { unlink(path_.c_str()); }

    VolumePin Pin() const { return PinVolume(path_, MountOptions()); }
    std::string Do(const WriterRequest &request) const { return DoHereOrAsk(path_, request, MountOptions()); }
    std::vector<std::string> Names() const { return NamesIn(Do({Kind::LIST, 0, "", ""})); }

    //! In the place of a writer, who ends with the first request that changes something: `works` before it can say so.
    void BesideOneThatEnds(bool works, const std::function<void()> &then, const std::function<void()> &ask) {
        const Target target = ResolveTarget(path_);
        FileDescriptor listener = ListenForReaders(target);
        ASSERT_TRUE(listener.IsOpen());
        std::thread writer([&] {
            for (bool ended = false; !ended;) {
                const FileDescriptor connection(accept(listener.Get(), nullptr, nullptr));
                std::optional<WriterRequest> request;
                for (int i = 0; i < 10000 && !request; i++) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    request = ReceiveRequest(connection.Get(), target);
                }
                ended = !request || ChangesVolume(request->kind);
                if (!request) {
                    continue;
                }
                if (!ended) {
                    SendAnswer(connection.Get(), Pin()->Answer(*request));
                } else {
                    listener = FileDescriptor();
                    if (works) {
                        Pin()->Answer(*request);
                    }
                    then();
                }
            }
        });
        ask();
        writer.join();
    }

    std::string path_;
    static inline int counter_ = 0;
};

using Strings = std::vector<std::string>;

} // namespace

// It has the name of the one who is asked, and the other one, who writes now, does not get it.
TEST_F(HereOrAskTest, WhoDoesNotWriteAnyMoreYields) {
    const Target target = ResolveTarget(path_);
    const auto idle = Volume::Mount(target, MountOptions(), std::make_shared<IoStats>());
    idle->Open("x", WriteMode())->Sync(); // from now on it can be asked
    const WriterRequest request{Kind::SNAPSHOT, 7, "x", "s"};
    EXPECT_TRUE(Ask(target, {Kind::LIST, 0, "", ""}, nullptr).has_value());
    std::optional<Unanswered::Reason> reason;
    {
        const TargetLock other(target, TargetLock::Mode::SHARED); // as one who is about to write
        try {
            Ask(target, request, nullptr);
        } catch (const Unanswered &error) {
            reason = error.reason;
        }
    }
    EXPECT_EQ(reason, Unanswered::Reason::ENDED) << "another one is to be asked";
    FileDescriptor listener;
    for (int i = 0; i < 20 && !listener.IsOpen(); i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        listener = ListenForReaders(target);
    }
    EXPECT_TRUE(listener.IsOpen()) << "the name is free for that one";
}

TEST_F(HereOrAskTest, WhatAWriterThatEndedHasDoneOrNotIsDoneOnce) {
    const auto nothing = [] {};
    for (const bool works : {false, true}) {
        BesideOneThatEnds(works, nothing, [&] { Do({Kind::CLONE, 0, "x", "clone"}); });
        EXPECT_EQ(Names(), (Strings{"clone", "other", "x"})) << works;
        BesideOneThatEnds(works, nothing, [&] { Do({Kind::RENAME, 0, "clone", "moved"}); });
        EXPECT_EQ(Names(), (Strings{"moved", "other", "x"})) << works;
        BesideOneThatEnds(works, nothing, [&] { Do({Kind::REMOVE, 0, "moved", ""}); });
        EXPECT_EQ(Names(), (Strings{"other", "x"})) << works;
        BesideOneThatEnds(works, nothing, [&] { Do({Kind::SNAPSHOT, 0, "x", "s"}); });
        EXPECT_EQ(Names(), (Strings{"other", "x", "x@s"})) << works;
        BesideOneThatEnds(works, nothing, [&] { Do({Kind::DROP_SNAPSHOT, 0, "x@s", ""}); });
        EXPECT_EQ(Names(), (Strings{"other", "x"})) << works;
    }
}

TEST_F(HereOrAskTest, WhatOthersHaveMadeSinceIsNotTakenForIt) {
    BesideOneThatEnds(
        true, [&] { Pin()->Clone("other", "clone"); },
        [&] {
            Pin()->Clone("x", "clone");
            Do({Kind::REMOVE, 0, "clone", ""});
        });
    EXPECT_EQ(ReadAll(*Pin(), "clone"), "o") << "it is another file than what was to be removed";
    BesideOneThatEnds(
        false, [&] { Pin()->Snapshot("x", "s"); },
        [&] { EXPECT_EQ(FailureOf([&] { Do({Kind::SNAPSHOT, 0, "x", "s"}); }), ErrorCode::EXISTS); });
}

TEST_F(HereOrAskTest, WhatIsRefusedIsSaidByWhoeverIsAsked) {
    EXPECT_EQ(FailureOf([&] { Do({Kind::CLONE, 0, "none", "clone"}); }), ErrorCode::NOT_FOUND);
    const VolumePin volume = Pin();
    const auto writer = volume->Open("x", WriteMode());
    const Target target = ResolveTarget(path_);
    const auto refusal = [&](const WriterRequest &request) {
        return FailureOf([&] { Ask(target, request, nullptr); });
    };
    EXPECT_EQ(refusal({Kind::RENAME, 0, "none", "y"}), ErrorCode::NOT_FOUND);
    EXPECT_EQ(refusal({Kind::RENAME, 0, "x", "y"}), ErrorCode::LOCKED);
    EXPECT_EQ(refusal({Kind::RENAME, 0, "other", "x"}), ErrorCode::EXISTS);
    EXPECT_EQ(Ask(target, {Kind::IDENTIFY, 0, "none", ""}, nullptr), "");
    EXPECT_EQ(NamesIn(*Ask(target, {Kind::LIST, 0, "", ""}, nullptr)), (Strings{"other", "x"}));
    Ask(target, {Kind::RENAME, 0, "other", "y"}, nullptr);
    EXPECT_EQ(Names(), (Strings{"x", "y"}));
}

TEST_F(HereOrAskTest, AHolderThatComesAndGoesIsWaitedForAndOneThatStaysIsNot) {
    const Target target = ResolveTarget(path_);
    auto lock = std::make_unique<TargetLock>(target, TargetLock::Mode::EXCLUSIVE);
    std::thread holder([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        lock.reset();
    });
    Do({Kind::CLONE, 0, "x", "clone"});
    holder.join();
    EXPECT_EQ(Names(), (Strings{"clone", "other", "x"}));
    const TargetLock stays(target, TargetLock::Mode::SHARED);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(FailureOf([&] { Do({Kind::REMOVE, 0, "clone", ""}); }), ErrorCode::LOCKED);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_EQ(Names(), (Strings{"clone", "other", "x"}));
}

TEST_F(HereOrAskTest, AnInterruptEndsTheWait) {
    const TargetLock stays(ResolveTarget(path_), TargetLock::Mode::SHARED);
    MountOptions options;
    options.interrupted = [] { return true; };
    EXPECT_EQ(FailureOf([&] { DoHereOrAsk(path_, {Kind::REMOVE, 0, "x", ""}, options); }),
              ErrorCode::INTERRUPTED);
}

TEST_F(HereOrAskTest, ManyAtOnce) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 20; i++) {
        threads.emplace_back([&, i] {
            const std::string name = "c" + std::to_string(i);
            for (int round = 0; round < 3; round++) {
                Do({Kind::CLONE, 0, "x", name});
                Do({Kind::RENAME, 0, name, name + "m"});
                Do({Kind::REMOVE, 0, name + "m", ""});
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(Names(), (Strings{"other", "x"}));
}

} // namespace rawduck
