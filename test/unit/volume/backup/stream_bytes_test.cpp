//! What a stream is written to.

#include "support/test_support.hpp"
#include "volume/backup/stream/stream_bytes.hpp"

#include <chrono>
#include <fcntl.h>
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

} // namespace rawduck
