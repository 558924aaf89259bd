//! What a stream is written to.

#include "support/test_support.hpp"
#include "volume/backup/stream/stream_bytes.hpp"

#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <sys/socket.h>

namespace rawduck {

namespace {

//! Writes more than fits to where nobody reads, until it is interrupted.
void WriteInterrupted(int fd) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const auto interrupted = [&] { return Clock::now() > begin + std::chrono::milliseconds(200); };
    const std::string bytes(8 << 20, 'x');
    DescriptorSink sink(fd, interrupted);
    EXPECT_EQ(CatchError([&] { sink.Write(bytes.data(), bytes.size()); }).Code(), ErrorCode::INTERRUPTED);
}

std::string ContentOf(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

} // namespace

// Would it wait for a reader, the test would end with its time.
TEST(StreamBytesTest, IsInterruptedWhereNobodyReads) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    WriteInterrupted(ends[0]);
    close(ends[0]);
    close(ends[1]);
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    WriteInterrupted(ends[1]);
    EXPECT_EQ(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0) << "which others would notice";
    close(ends[0]);
    close(ends[1]);
}

// Whoever is killed before the end leaves nothing that looks like a backup.
TEST(StreamBytesTest, AFileHasItsNameWhenItIsFinished) {
    const TemporaryFile beside(0);
    const std::string path = beside.Path() + ".stream";
    {
        DescriptorSink sink(path, nullptr);
        sink.Write("half", 4);
        EXPECT_NE(access(path.c_str(), F_OK), 0);
    }
    EXPECT_NE(access(path.c_str(), F_OK), 0);
    DescriptorSink sink(path, nullptr), other(path, nullptr);
    sink.Write("whole", 5);
    sink.Finish();
    EXPECT_EQ(ContentOf(path), "whole");
    other.Write("another", 7);
    EXPECT_EQ(CatchError([&] { other.Finish(); }).Code(), ErrorCode::EXISTS);
    EXPECT_EQ(CatchError([&] { DescriptorSink(path, nullptr); }).Code(), ErrorCode::EXISTS);
    EXPECT_EQ(ContentOf(path), "whole");
    EXPECT_NE(
        std::string(CatchError([&] { DescriptorSink("/dev/null", nullptr); }).what()).find("standard output"),
        std::string::npos);
    unlink(path.c_str());
}

} // namespace rawduck
