#include "ceph/channel/packets.hpp"
#include "ceph/helper/worker/handed_over_object.hpp"
#include "ceph/osd/time_budget.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck_ceph {
namespace {

using std::chrono::milliseconds;

OwnedFd File(const std::string &content) {
    return MakeMemoryFile("test", content);
}

struct Pair {
    Pair() {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        left = OwnedFd(ends[0]);
        right = OwnedFd(ends[1]);
    }
    OwnedFd left, right;
};

std::string Piece(const std::string &data, const std::vector<ByteRange> &ranges) {
    return "rq" + data +
           std::string(reinterpret_cast<const char *>(ranges.data()), ranges.size() * sizeof(ByteRange));
}

//! The object "abc.......jkl", of which the first and the last three bytes were handed over, in two pieces.
JobPacket SomeJob(std::vector<OwnedFd> &files) {
    const std::string first = Piece("abc", {{0, 1}, {1, 2}}), second = Piece("jkl", {{10, 3}});
    JobPacket job;
    job.object_bytes = 13;
    job.request_bytes = 2;
    job.piece_count = 2;
    job.range_counts[0] = 2;
    job.range_counts[1] = 1;
    job.file_bytes[0] = first.size();
    job.file_bytes[1] = second.size();
    files.clear();
    files.push_back(File(first));
    files.push_back(File(second));
    return job;
}

} // namespace

TEST(MemoryFileTest, OnlySealedFilesOfTheirSizeAreMapped) {
    OwnedFd sealed = File("12345");
    EXPECT_TRUE(IsSealed(sealed.Get(), 5));
    EXPECT_FALSE(IsSealed(sealed.Get(), 4));
    EXPECT_NE(ftruncate(sealed.Get(), 1), 0);
    OwnedFd open_file(memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(open_file.Get(), 5), 0);
    EXPECT_FALSE(IsSealed(open_file.Get(), 5));
    EXPECT_FALSE(IsSealed(-1, 0));
    EXPECT_THROW(MappedFile(std::move(open_file), 5), std::runtime_error);
    char bytes[5];
    ReadMemoryFile(sealed.Get(), bytes, 5);
    EXPECT_EQ(std::string(bytes, 5), "12345");
    EXPECT_EQ(std::string(MappedFile(std::move(sealed), 5).Data(), 5), "12345");
}

TEST(PacketsTest, PacketsOfAnotherSizeOrWithTooManyFilesCloseTheChannel) {
    Pair pair;
    AnswerPacket sent, got;
    sent.retry_ms = 7;
    std::vector<OwnedFd> files;
    EXPECT_EQ(ReceivePacket(pair.right.Get(), &got, sizeof(got), files, 1), Received::NOTHING);
    ASSERT_TRUE(SendPacket(pair.left.Get(), &sent, sizeof(sent), {pair.left.Get()}));
    EXPECT_EQ(ReceivePacket(pair.right.Get(), &got, sizeof(got), files, 1), Received::PACKET);
    EXPECT_EQ(got.retry_ms, 7u);
    EXPECT_EQ(files.size(), 1u);
    files.clear();
    ASSERT_TRUE(SendPacket(pair.left.Get(), &sent, sizeof(sent) - 1));
    EXPECT_EQ(ReceivePacket(pair.right.Get(), &got, sizeof(got), files, 1), Received::CLOSED);
    ASSERT_TRUE(SendPacket(pair.left.Get(), &sent, sizeof(sent), {0, 0}));
    EXPECT_EQ(ReceivePacket(pair.right.Get(), &got, sizeof(got), files, 1), Received::CLOSED);
    EXPECT_TRUE(files.empty());
    EXPECT_TRUE(IsOwnUser(pair.left.Get()));
    pair.left.Close();
    EXPECT_FALSE(SendPacket(pair.right.Get(), &sent, sizeof(sent)));
    EXPECT_EQ(ReceivePacket(pair.right.Get(), &got, sizeof(got), files, 1), Received::CLOSED);
}

TEST(PacketsTest, DirectoriesOfOthersAreRefused) {
    char path[] = "/tmp/rawduck-helper-XXXXXX";
    ASSERT_TRUE(mkdtemp(path));
    const std::string inside = std::string(path) + "/run";
    RequirePrivateDirectory(inside);
    RequirePrivateDirectory(inside);
    ASSERT_EQ(chmod(inside.c_str(), 0750), 0);
    EXPECT_THROW(RequirePrivateDirectory(inside), std::runtime_error);
    const std::string link = std::string(path) + "/link";
    ASSERT_EQ(symlink(path, link.c_str()), 0);
    EXPECT_THROW(RequirePrivateDirectory(link), std::runtime_error);
    EXPECT_THROW(RequirePrivateDirectory(inside + "/too/deep"), std::runtime_error);
    EXPECT_THROW(SocketPath(std::string(200, 'x')), std::runtime_error);
    unlink(link.c_str());
    rmdir(inside.c_str());
    rmdir(path);
}

TEST(HandedOverObjectTest, OnlyWhatWasHandedOverCanBeRead) {
    std::vector<OwnedFd> files;
    const JobPacket job = SomeJob(files);
    HandedOverObject object(job, std::move(files));
    EXPECT_EQ(std::string(object.Request(), 2), "rq");
    EXPECT_EQ(object.Size(), 13u);
    char bytes[13];
    object.Read(0, 3, bytes);
    EXPECT_EQ(std::string(bytes, 3), "abc");
    object.Read(11, 2, bytes);
    EXPECT_EQ(std::string(bytes, 2), "kl");
    EXPECT_THROW(object.Read(2, 2, bytes), std::runtime_error);
    EXPECT_THROW(object.Read(9, 2, bytes), std::runtime_error);
    EXPECT_THROW(object.Read(12, 2, bytes), std::runtime_error);
}

TEST(HandedOverObjectTest, JobsThatDoNotFitTheirFilesAreRefused) {
    std::vector<OwnedFd> files;
    auto is_refused = [&files](const JobPacket &job) {
        try {
            HandedOverObject object(job, std::move(files));
            return false;
        } catch (const std::runtime_error &) {
            return true;
        }
    };
    JobPacket job = SomeJob(files);
    EXPECT_FALSE(is_refused(job));
    job = SomeJob(files);
    job.object_bytes = 12; // the last range ends behind it
    EXPECT_TRUE(is_refused(job));
    job = SomeJob(files);
    job.range_counts[1] = 1000;
    EXPECT_TRUE(is_refused(job));
    job = SomeJob(files);
    job.file_bytes[0]++;
    EXPECT_TRUE(is_refused(job));
    job = SomeJob(files);
    job.piece_count = 3;
    EXPECT_TRUE(is_refused(job));
    job = SomeJob(files);
    std::swap(files[0], files[1]);
    EXPECT_TRUE(is_refused(job));
}

TEST(TimeBudgetTest, ALineOfCallsGetsAShare) {
    TimeBudget budget;
    auto now = TimeBudget::Clock::now();
    EXPECT_EQ(budget.Allowed(now), Allowance::ALL);
    budget.Spend(TimeBudget::RESERVE);
    EXPECT_EQ(budget.Allowed(now), Allowance::FETCH);
    budget.Spend(TimeBudget::RESERVE);
    EXPECT_EQ(budget.Allowed(now), Allowance::NOTHING);
    now += TimeBudget::RESERVE;
    EXPECT_EQ(budget.Allowed(now), Allowance::FETCH);
    now += std::chrono::hours(10);
    EXPECT_EQ(budget.Allowed(now), Allowance::ALL);
    // For a second, one call of 10 ms after the other, as far as it is allowed.
    const auto end = now + milliseconds(1000);
    milliseconds spent{0};
    while (now < end) {
        if (budget.Allowed(now) == Allowance::ALL) {
            budget.Spend(milliseconds(10));
            spent += milliseconds(10);
            now += milliseconds(10);
        } else {
            now += milliseconds(1);
        }
    }
    EXPECT_GT(spent.count(), 450);
    EXPECT_LT(spent.count(), 550);
}

} // namespace rawduck_ceph
