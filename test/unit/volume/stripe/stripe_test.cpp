//! Volumes on several files: how they are made, found, and kept from being put together wrongly.

#include "io/stripe/find_members.hpp"
#include "support/test_support.hpp"
#include "target/lock/reader_lock.hpp"
#include "target/lock/target_lock.hpp"
#include "volume/check.hpp"
#include "volume/stripe/stripe_fixture.hpp"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sys/resource.h>

namespace rawduck {
namespace {

namespace fs = std::filesystem;

class StripeTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = fs::current_path() / "stripe_XXXXXX";
        folder_ = mkdtemp(pattern.data());
    }
    void TearDown() override { fs::remove_all(folder_); }

    std::string Path(const std::string &name) const { return folder_ / name; }
    std::vector<std::string> Paths(size_t count) const {
        std::vector<std::string> paths;
        for (size_t i = 0; i < count; i++) {
            paths.push_back(Path("m" + std::to_string(i)));
        }
        return paths;
    }
    void Format(size_t count, bool force = false) {
        FormatOptions options;
        options.size_bytes = 16 * MIB;
        options.force = force;
        Volume::FormatStripe(Paths(count), options);
    }
    static std::shared_ptr<Volume> Mount(const std::string &path) {
        return UseVolume(path, [](const Target &target) {
            return Volume::Mount(target, MountOptions(), std::make_shared<IoStats>());
        });
    }
    static void Put(const std::string &path, const std::string &file, const std::string &content) {
        auto volume = Mount(path);
        auto opened = volume->Open(file, WriteMode());
        opened->Append(content.data(), content.size());
        opened->Sync();
    }
    static std::string Get(const std::string &path, const std::string &file) {
        return ReadAll(*Mount(path), file);
    }
    //! Of what opening the volume by this name fails with.
    static std::string Refusal(const std::string &path, ErrorCode code) {
        const Error error = CatchError([&] { Mount(path); });
        EXPECT_EQ(error.Code(), code) << error.what();
        return error.what();
    }
    static void Overwrite(const std::string &path, uint64_t offset, const std::string &bytes) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(offset));
        file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }

    static std::string ReadFile(const std::string &path) {
        std::ifstream file(path, std::ios::binary);
        return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    }

    fs::path folder_;
};

} // namespace

TEST_F(StripeTest, AnyMemberNamesTheVolume) {
    Format(3);
    const std::string content(5 * MIB, 'x');
    Put(Path("m1"), "a", content);
    for (const std::string &path : Paths(3)) {
        EXPECT_EQ(Get(path, "a"), content);
        EXPECT_EQ(Mount(path)->Info().members, Paths(3));
        EXPECT_EQ(PinVolume(path, MountOptions())->Info().target, path);
    }
    const VolumePin one = PinVolume(Path("m2"), MountOptions());
    EXPECT_EQ(&*one, &*PinVolume(Path("m0"), MountOptions())) << "one volume, whichever is named";
}

TEST_F(StripeTest, MembersAreFoundWhereverTheyAre) {
    Format(3);
    Put(Path("m0"), "a", "here");
    fs::rename(Path("m0"), Path("swap"));
    fs::rename(Path("m2"), Path("m0"));
    fs::rename(Path("swap"), Path("m2"));
    EXPECT_EQ(Get(Path("m1"), "a"), "here");
    fs::rename(folder_, folder_.string() + "_moved");
    EXPECT_EQ(Get(folder_.string() + "_moved/m0", "a"), "here");
    fs::rename(folder_.string() + "_moved", folder_);
    // They are looked for where they were found last.
    fs::create_directory(Path("elsewhere"));
    Put(Path("m1"), "b", "again");
    fs::rename(Path("m1"), Path("elsewhere/m1"));
    EXPECT_EQ(Get(Path("elsewhere/m1"), "b"), "again");
}

TEST_F(StripeTest, AMissingMemberIsNamed) {
    Format(3);
    fs::remove(Path("m1"));
    const std::string text = Refusal(Path("m0"), ErrorCode::NOT_FOUND);
    EXPECT_NE(text.find("member 1 of 3, which was " + Path("m1") + ", UUID "), std::string::npos) << text;
    EXPECT_NE(text.find("Found: " + Path("m0") + ", " + Path("m2")), std::string::npos) << text;
}

//! Nobody is to format what still has all of its data.
TEST_F(StripeTest, AMemberWithoutHeadersIsSaidToBeThere) {
    Format(3);
    Overwrite(Path("m1"), 0, std::string(4096, '\0'));
    Overwrite(Path("m1"), 16 * MIB - 4096, std::string(4096, '\0'));
    const std::string text = Refusal(Path("m0"), ErrorCode::NOT_FOUND);
    EXPECT_NE(text.find(Path("m1") + " has no header of a member"), std::string::npos) << text;
    EXPECT_NE(text.find("do not format it"), std::string::npos) << text;
}

TEST_F(StripeTest, ACopyBesideItsOriginalIsRefused) {
    Format(2);
    fs::copy_file(Path("m1"), Path("copy"));
    EXPECT_EQ(Mount(Path("m0"))->Info().members, Paths(2)) << "the originals are where they were";
    const std::string text = Refusal(Path("copy"), ErrorCode::INVALID);
    EXPECT_NE(text.find("member 1 of 2 is there twice: " + Path("copy") + " and " + Path("m1")),
              std::string::npos)
        << text;
    fs::rename(Path("m0"), Path("moved")); // now all have to be looked for
    Refusal(Path("moved"), ErrorCode::INVALID);
}

TEST_F(StripeTest, AnOldCopyInPlaceOfAMemberIsRefused) {
    Format(3);
    Put(Path("m0"), "a", "first");
    fs::copy_file(Path("m1"), Path("copy"));
    Put(Path("m0"), "b", "second");
    fs::remove(Path("m1"));
    fs::rename(Path("copy"), Path("m1"));
    const std::string text = Refusal(Path("m0"), ErrorCode::CORRUPT);
    EXPECT_NE(text.find("member 1 (" + Path("m1") + ") has generation"), std::string::npos) << text;
}

TEST_F(StripeTest, AnOldCopyOverAMemberIsRefused) {
    Format(2);
    fs::copy_file(Path("m0"), Path("copy"));
    Put(Path("m0"), "a", "first");
    fs::copy_file(Path("copy"), Path("m0"), fs::copy_options::overwrite_existing);
    fs::remove(Path("copy"));
    Refusal(Path("m1"), ErrorCode::CORRUPT);
}

// Two histories from one state, each written to once: the generations are the same.
TEST_F(StripeTest, MembersOfTwoHistoriesAreNotMixed) {
    Format(2);
    Put(Path("m0"), "a", "common");
    fs::create_directory(Path("backup"));
    for (const char *name : {"m0", "m1"}) {
        fs::copy_file(Path(name), Path("backup") + "/" + name);
    }
    Put(Path("m0"), "b", "one history");
    fs::rename(Path("m1"), Path("old"));
    for (const char *name : {"m0", "m1"}) {
        fs::copy_file(Path("backup") + "/" + name, Path(name), fs::copy_options::overwrite_existing);
    }
    fs::remove_all(Path("backup"));
    const std::string old = ReadFile(Path("old"));
    fs::remove(Path("old"));
    Put(Path("m0"), "c", "another one");
    const std::string right = ReadFile(Path("m1"));
    Overwrite(Path("m1"), 0, old);
    const std::string text = Refusal(Path("m0"), ErrorCode::CORRUPT);
    EXPECT_NE(text.find("of another history"), std::string::npos) << text;
    Overwrite(Path("m1"), 0, right);
    EXPECT_EQ(Get(Path("m0"), "c"), "another one") << "nothing was changed by the attempt";
}

TEST_F(StripeTest, ANewCopyTakesTheMembersPlace) {
    Format(2);
    Put(Path("m0"), "a", "first");
    fs::copy_file(Path("m1"), Path("copy"));
    fs::remove(Path("m1"));
    EXPECT_EQ(Get(Path("m0"), "a"), "first");
    Put(Path("copy"), "b", "second");
    EXPECT_EQ(Get(Path("m0"), "b"), "second");
}

TEST_F(StripeTest, MembersOfTwoStripesAreNotMixed) {
    Format(2);
    fs::copy_file(Path("m1"), Path("old"));
    Format(2, true);
    fs::remove(Path("m1"));
    fs::rename(Path("old"), Path("m1"));
    const std::string text = Refusal(Path("m0"), ErrorCode::NOT_FOUND);
    EXPECT_NE(text.find("member 1 of 2"), std::string::npos) << text;
}

// Between looking it up and locking it, somebody may have formatted it.
TEST_F(StripeTest, WhatWasFormattedSinceItWasLookedUpIsRefused) {
    Format(2);
    const Target before = ResolveVolume(Path("m0"), Headers::NOW);
    Format(2, true);
    EXPECT_EQ(FailureOf([&] { Volume::Mount(before, MountOptions(), std::make_shared<IoStats>()); }),
              ErrorCode::LOCKED);
}

TEST_F(StripeTest, MembersAreNotFormattedAlone) {
    Format(2);
    std::string text;
    EXPECT_EQ(FailureOf([&] { Volume::Format(Path("m1"), FormatOptions()); }, &text), ErrorCode::EXISTS);
    EXPECT_NE(text.find("member 1 of a rawduck volume on 2 targets (" + Path("m0") + ", " + Path("m1") +
                        "), which is lost with it"),
              std::string::npos)
        << text;
    FormatOptions options;
    options.size_bytes = 16 * MIB;
    EXPECT_EQ(FailureOf([&] { Volume::FormatStripe({Path("m1"), Path("new")}, options); }),
              ErrorCode::EXISTS);
    EXPECT_FALSE(fs::exists(Path("new"))) << "what was made is taken away again";
}

TEST_F(StripeTest, OneThatIsFormattedAloneIsNoMemberAnyMore) {
    Format(2);
    FormatOptions options;
    options.force = true;
    Volume::Format(Path("m1"), options);
    EXPECT_TRUE(Mount(Path("m1"))->Info().members.empty());
    Refusal(Path("m0"), ErrorCode::NOT_FOUND);
}

TEST_F(StripeTest, EachTargetIsNamedOnce) {
    TemporaryFile a(16 * MIB);
    fs::create_symlink(a.Path(), Path("link"));
    fs::create_hard_link(a.Path(), Path("hard"));
    for (const std::string &same : {a.Path(), Path("link"), Path("hard")}) {
        std::string text;
        EXPECT_EQ(FailureOf([&] { Volume::FormatStripe({a.Path(), same}, FormatOptions()); }, &text),
                  ErrorCode::INVALID);
        EXPECT_NE(text.find("the same as"), std::string::npos) << text;
    }
}

TEST_F(StripeTest, WhatCannotBeStripedIsRefusedBeforeAnythingIsChanged) {
    TemporaryFile a(16 * MIB), b(16 * MIB);
    FormatOptions options;
    for (const uint64_t chunk : {uint64_t(8 * KIB), uint64_t(100000), uint64_t(32 * MIB)}) {
        options.chunk_bytes = chunk;
        EXPECT_EQ(FailureOf([&] { Volume::FormatStripe({a.Path(), b.Path()}, options); }),
                  ErrorCode::INVALID);
    }
    EXPECT_EQ(FailureOf([&] { Volume::FormatStripe({a.Path(), "memory:x"}, FormatOptions()); }),
              ErrorCode::INVALID);
    EXPECT_EQ(FailureOf([&] { Volume::FormatStripe({a.Path()}, FormatOptions()); }), ErrorCode::INVALID);
    Overwrite(b.Path(), 9 * MIB, "not seen");
    Overwrite(b.Path(), 100, "something");
    EXPECT_EQ(FailureOf([&] { Volume::FormatStripe({a.Path(), b.Path()}, FormatOptions()); }),
              ErrorCode::EXISTS);
    std::ifstream first(a.Path(), std::ios::binary);
    std::string bytes(MIB, 'x');
    first.read(&bytes[0], static_cast<std::streamsize>(bytes.size()));
    EXPECT_EQ(bytes, std::string(MIB, '\0'));
}

TEST_F(StripeTest, AWriterHasAllMembers) {
    Format(3);
    auto writer = Mount(Path("m0"));
    auto file = writer->Open("a", WriteMode());
    for (const std::string &path : Paths(3)) {
        EXPECT_EQ(FailureOf([&] { Mount(path); }), ErrorCode::LOCKED);
        EXPECT_EQ(FailureOf([&] { TargetLock(ResolveTarget(path), TargetLock::Mode::SHARED); }),
                  ErrorCode::LOCKED);
    }
    file.reset();
    for (const std::string &path : Paths(3)) {
        EXPECT_NO_THROW(Mount(path)) << "a shared lock again";
    }
}

// A writer that one member is refused to keeps none of the others.
TEST_F(StripeTest, ARefusedWriterIsAReaderAgain) {
    Format(3);
    auto volume = Mount(Path("m0"));
    {
        const TargetLock other(ResolveTarget(Path("m2")), TargetLock::Mode::SHARED);
        EXPECT_EQ(FailureOf([&] { volume->Open("a", WriteMode()); }), ErrorCode::LOCKED);
        EXPECT_NO_THROW(Mount(Path("m1")));
    }
    EXPECT_NO_THROW(volume->Open("a", WriteMode()));
}

TEST_F(StripeTest, CheckTellsOfMembersAndRepairRenewsTheirHeaders) {
    Format(2);
    Put(Path("m0"), "a", "content");
    Overwrite(Path("m1"), 64, "damaged");
    size_t warnings = 0;
    for (const CheckFinding &finding : CheckVolume(Path("m1"), nullptr)) {
        warnings += finding.what == "member 1" && finding.severity == CheckFinding::Severity::WARNING ? 1 : 0;
        EXPECT_TRUE(finding.what != "member 0" || finding.severity == CheckFinding::Severity::OK);
    }
    EXPECT_EQ(warnings, 1u);
    EXPECT_EQ(RepairVolume(Path("m1")).size(), 1u);
    EXPECT_TRUE(RepairVolume(Path("m1")).empty());
    Overwrite(Path("m1"), 16 * MIB - 4096 + 64, "damaged");
    EXPECT_EQ(Get(Path("m1"), "a"), "content") << "the first copy is whole";
}

TEST_F(StripeTest, GrowsWithItsFiles) {
    Format(3);
    Put(Path("m0"), "a", std::string(MIB, 'a'));
    const uint64_t before = Mount(Path("m0"))->Info().capacity_bytes;
    EXPECT_EQ(Mount(Path("m2"))->Grow(24 * MIB).after_bytes, before + 3 * 8 * MIB);
    for (const std::string &path : Paths(3)) {
        EXPECT_EQ(fs::file_size(path), 24 * MIB);
    }
    Put(Path("m1"), "b", std::string(30 * MIB, 'b'));
    EXPECT_EQ(Get(Path("m0"), "b"), std::string(30 * MIB, 'b'));
    EXPECT_EQ(Get(Path("m0"), "a"), std::string(MIB, 'a'));
    // The shortest counts.
    fs::resize_file(Path("m0"), 40 * MIB);
    EXPECT_EQ(Mount(Path("m0"))->Grow(0).after_bytes, before + 3 * 8 * MIB);
}

// Its drive may hang, so it is locked before it is read, or somebody is asked who has it.
TEST_F(StripeTest, AMemberIsReadOnceItIsLocked) {
    Format(2);
    Put(Path("m0"), "a", "content");
    const Target unread = ResolveVolume(Path("m1"));
    EXPECT_TRUE(unread.headers_unread);
    EXPECT_EQ(unread.stripe, nullptr);
    EXPECT_THROW(OpenDevice(unread, DeviceOptions()), MemberFound);
    EXPECT_EQ(ResolveVolume(Path("m1"), Headers::NOW).stripe->members.size(), 2u);
    {
        const TargetLock other(ResolveTarget(Path("m1")), TargetLock::Mode::EXCLUSIVE);
        EXPECT_EQ(FailureOf([&] { PinVolume(Path("m1"), MountOptions()); }), ErrorCode::LOCKED);
    }
    const TargetLock other(ResolveTarget(Path("m1")), TargetLock::Mode::SHARED);
    EXPECT_EQ(ReadAll(*PinVolume(Path("m1"), MountOptions()), "a"), "content");
    EXPECT_EQ(CheckVolume(Path("m1"), nullptr).front().what, "member 0");
    EXPECT_EQ(FailureOf([&] { RepairVolume(Path("m1")); }), ErrorCode::LOCKED);
}

TEST_F(StripeTest, WhatThisProcessHasLockedIsKnown) {
    Format(3);
    const VolumePin writer = PinVolume(Path("m0"), MountOptions());
    auto file = writer->Open("a", WriteMode());
    for (const std::string &path : Paths(3)) {
        const Target target = ResolveVolume(path);
        ASSERT_NE(target.stripe, nullptr) << path;
        EXPECT_EQ(target.stripe->members.size(), 3u);
        EXPECT_EQ(&*PinVolume(path, MountOptions()), &*writer);
    }
    EXPECT_TRUE(IsSameVolume(Path("m1"), Path("m2")));
}

// Otherwise a member could be formatted while it is read.
TEST_F(StripeTest, AReaderHasItsByteOnEveryMember) {
    Format(3);
    const ReaderLock reader(ResolveVolume(Path("m1"), Headers::NOW));
    FormatOptions options;
    options.force = true;
    for (const std::string &path : Paths(3)) {
        EXPECT_TRUE(ReaderBytes(ResolveTarget(path)).IsLocked(reader.Number())) << path;
        EXPECT_EQ(FailureOf([&] { Volume::Format(path, options); }), ErrorCode::LOCKED);
    }
}

TEST_F(StripeTest, ACopyDoesNotTakeThePlaceOfWhatCannotBeRead) {
    Format(2);
    Put(Path("m0"), "a", "first");
    fs::copy_file(Path("m1"), Path("copy"));
    const Target named = ResolveTarget(Path("m0"));
    const MemberHeader header = *HeadersOf(named).Newest();
    const auto read = [&](const Target &target) {
        HeaderCopies copies = target.path == Path("m1") ? HeaderCopies() : HeadersOf(target);
        copies.obstacle = target.path == Path("m1") ? "Input/output error" : "";
        return copies;
    };
    std::string text;
    EXPECT_EQ(FailureOf([&] { FindMembers(named, header, read); }, &text), ErrorCode::IO);
    EXPECT_NE(text.find("member 1 of 2 was last at " + Path("m1") + ". " + Path("m1") +
                        " cannot be read: Input/output error. " + Path("copy") + " says that it is"),
              std::string::npos)
        << text;
    fs::remove(Path("copy"));
    EXPECT_EQ(FailureOf([&] { FindMembers(named, header, read); }, &text), ErrorCode::NOT_FOUND);
    EXPECT_NE(text.find("(" + Path("m1") + " cannot be read: Input/output error)"), std::string::npos)
        << text;
}

//! Of this process's limit nothing follows for the member.
TEST_F(StripeTest, AMemberIsNotMissingWhereNoDescriptorIsLeftToLook) {
    Format(2);
    const Target named = ResolveTarget(Path("m0"));
    const MemberHeader header = *HeadersOf(named).Newest();
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{3, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    std::string text;
    const ErrorCode of_headers = FailureOf([&] { HeadersOf(named); }, &text);
    const ErrorCode of_members = FailureOf([&] { FindMembers(named, header, HeadersOf); }, &text);
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(of_headers, ErrorCode::DESCRIPTORS);
    EXPECT_EQ(of_members, ErrorCode::DESCRIPTORS) << text;
    EXPECT_NE(text.find("ulimit -n"), std::string::npos) << text;
}

//! No format makes two members that differ in that.
TEST_F(StripeTest, AMemberThatDescribesTheStripeOtherwiseIsNone) {
    Format(2);
    const Target named = ResolveTarget(Path("m0"));
    const MemberHeader header = *HeadersOf(named).Newest();
    for (uint64_t MemberHeader::*field : {&MemberHeader::chunk_bytes, &MemberHeader::data_start}) {
        const auto read = [&](const Target &target) {
            HeaderCopies copies = HeadersOf(target);
            (*copies.first).*field *= 2;
            copies.last.reset();
            return copies;
        };
        std::string text;
        EXPECT_EQ(FailureOf([&] { FindMembers(named, header, read); }, &text), ErrorCode::NOT_FOUND);
        EXPECT_NE(text.find(Path("m1") + " cannot be read: its header describes the stripe otherwise than " +
                            Path("m0")),
                  std::string::npos)
            << text;
    }
}

TEST_F(StripeTest, WhatWasMadeForARefusedStripeIsTakenAway) {
    FormatOptions options;
    options.size_bytes = 16 * MIB;
    EXPECT_EQ(FailureOf([&] { Volume::FormatStripe({Path("a"), Path("a")}, options); }), ErrorCode::INVALID);
    EXPECT_FALSE(fs::exists(Path("a")));
    const std::string folder = Path(std::string(150, 'f'));
    fs::create_directory(folder);
    std::string text;
    EXPECT_EQ(FailureOf([&] { Volume::FormatStripe({Path("a"), folder + "/b"}, options); }, &text),
              ErrorCode::INVALID);
    EXPECT_NE(text.find("remember each other's path of at most 159"), std::string::npos) << text;
    EXPECT_FALSE(fs::exists(Path("a")) || fs::exists(folder + "/b"));
}

TEST_F(StripeTest, TheMemberThatMayNotBeWrittenIsNamed) {
    Format(3);
    fs::permissions(folder_, fs::perms::all);
    for (const char *name : {"m0", "m2"}) {
        ASSERT_EQ(chmod(Path(name).c_str(), 0666), 0);
    }
    ASSERT_EQ(chmod(Path("m1").c_str(), 0444), 0);
    EXPECT_TRUE(InChild([&] {
        if (getuid() == 0 &&
            (setgid(65534) != 0 || setuid(65534) != 0 || access(Path("m1").c_str(), R_OK) != 0)) {
            return true; // the path itself is out of reach for another user
        }
        const auto volume = Mount(Path("m0"));
        const Error error = CatchError([&] { volume->Open("f", WriteMode()); });
        return error.Code() == ErrorCode::PERMISSION &&
               std::string(error.what()).find("write to member 1 (" + Path("m1") + ")") != std::string::npos;
    }));
}

TEST_F(StripeTest, AShorterMemberIsRefused) {
    Format(2);
    fs::resize_file(Path("m1"), 12 * MIB);
    const std::string text = Refusal(Path("m0"), ErrorCode::CORRUPT);
    EXPECT_NE(text.find("because member 1 (" + Path("m1") + ") has 12582912 bytes"), std::string::npos)
        << text;
}

} // namespace rawduck
