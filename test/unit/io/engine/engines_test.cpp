//! The posix and io_uring engines on a regular file, and on a loop device where the machine lets us make one.
#include "common/memory/aligned_buffer.hpp"
#include "io/block_io.hpp"
#include "io/device/nvme_device.hpp"
#include "io/engine/io_uring.hpp"
#include "io/open_device.hpp"
#include "support/test_support.hpp"
#include "support/xnvme_support.hpp"
#include "target/inspect.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <thread>

namespace rawduck {
namespace {

constexpr uint64_t FILE_BYTES = 64 * MIB;

//! Attached while the object lives.
class LoopDevice {
  public:
    explicit LoopDevice(const std::string &file) {
        std::string command = "losetup --find --show '" + file + "' 2>/dev/null";
        FILE *pipe = popen(command.c_str(), "r");
        char line[256] = {};
        if (pipe && fgets(line, sizeof line, pipe)) {
            path_ = line;
            path_.erase(path_.find_last_not_of('\n') + 1);
        }
        if (pipe) {
            pclose(pipe);
        }
    }
    ~LoopDevice() {
        if (!path_.empty()) {
            EXPECT_EQ(system(("losetup --detach " + path_).c_str()), 0);
        }
    }
    LoopDevice(const LoopDevice &) = delete;
    LoopDevice &operator=(const LoopDevice &) = delete;
    const std::string &Path() const { return path_; }

  private:
    std::string path_;
};

class EngineTest : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "io_uring" && !IoUringObstacle().empty()) {
            GTEST_SKIP() << "no io_uring here: " << IoUringObstacle();
        }
    }
    static DeviceOptions Options() {
        DeviceOptions options;
        options.engine = GetParam();
        return options;
    }
    static std::unique_ptr<BlockIo> Open(const std::string &path, const DeviceOptions &options = Options(),
                                         uint32_t depth = 32) {
        BlockIoOptions io_options;
        io_options.queue_depth = depth;
        Target target = ResolveTarget(path);
        return std::make_unique<BlockIo>(OpenDevice(target, options), io_options, target.name,
                                         std::make_shared<IoStats>());
    }
    //! POSIX AIO belongs to the process that used it first, which these tests are.
    static bool WorksInChildren() { return GetParam() != "xnvme:posix"; }
    static void WriteAndReadBack(BlockIo &io, uint64_t offset, size_t length, size_t shift) {
        auto data = Pattern(length + shift, static_cast<uint32_t>(offset + length));
        std::vector<char> back(length + shift);
        io.Write(offset, data.data() + shift, length);
        io.Read(offset, back.data() + shift, length);
        ASSERT_EQ(std::memcmp(back.data() + shift, data.data() + shift, length), 0);
    }
};

TEST_P(EngineTest, WritesAndReadsAnyLengthAtAnyAddress) {
    TemporaryFile file(FILE_BYTES);
    auto io = Open(file.Path());
    EXPECT_EQ(io->Caps().engine, GetParam());
    EXPECT_EQ(io->Caps().engine_reason.find("asked for"), 0u) << io->Caps().engine_reason;
    EXPECT_EQ(io->Caps().capacity_bytes, FILE_BYTES);
    EXPECT_TRUE(io->Caps().volatile_write_cache);
    EXPECT_LE(io->Caps().lba_size, 4096u);
    for (size_t length : {4096u, 12288u, 256u * 1024u, 5u * 1024u * 1024u + 4096u}) {
        for (size_t shift : {0u, 1u, 16u, 512u}) {
            WriteAndReadBack(*io, 3 * MIB + 4096, length, shift);
        }
    }
    io->Flush();
    EXPECT_EQ(io->Stats().Snapshot(IoOperation::FLUSH).commands, 1u);
}

//! Below BlockIo, which sends such commands only where the disk has FUA of its own.
TEST_P(EngineTest, AWriteWithFuaArrives) {
    TemporaryFile file(FILE_BYTES);
    auto device = OpenDevice(ResolveTarget(file.Path()), Options());
    auto queue = device->CreateQueue(1, QueueUse::OWNED);
    auto run = [&](Opcode opcode, void *data, bool fua) {
        Command command;
        command.opcode = opcode;
        command.fua = fua;
        command.length = 4096;
        command.device_offset = 8192;
        command.data = data;
        EXPECT_TRUE(queue->Submit(command));
        Command *completed = nullptr;
        EXPECT_EQ(queue->Reap(&completed, 1, true), 1u);
        EXPECT_EQ(command.result, 4096);
    };
    alignas(4096) static char data[4096], back[4096];
    const auto pattern = Pattern(sizeof data, 5);
    std::copy(pattern.begin(), pattern.end(), data);
    run(Opcode::WRITE, data, true);
    run(Opcode::READ, back, false);
    EXPECT_EQ(std::memcmp(data, back, sizeof data), 0);
}

TEST_P(EngineTest, ScatteredSegmentsInOneRequest) {
    TemporaryFile file(FILE_BYTES);
    auto io = Open(file.Path());
    auto data = Pattern(FILE_BYTES, 5);
    io->Write(0, data.data(), data.size());
    std::vector<char> back(16 * MIB);
    Request request;
    uint64_t at = 0;
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t length = 4096 * (1 + i * 7 % 90);
        request.segments.push_back({(i * 37 % 64) * MIB, back.data() + at, length});
        at += length;
    }
    io->Execute(request);
    for (const auto &segment : request.segments) {
        EXPECT_EQ(std::memcmp(segment.data, data.data() + segment.device_offset, segment.length), 0);
    }
}

TEST_P(EngineTest, ManyThreadsAtOnce) {
    TemporaryFile file(FILE_BYTES);
    auto io = Open(file.Path());
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 64; t++) {
        threads.emplace_back([&, t] {
            for (size_t round = 0; round < 4; round++) {
                WriteAndReadBack(*io, t * MIB, MIB, round % 2 * 16);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(io->Stats().Snapshot(IoOperation::WRITE).bytes, 256 * MIB);
}

TEST_P(EngineTest, ThreadsThatOutliveTheDeviceAndThatDoNot) {
    TemporaryFile file(FILE_BYTES);
    for (int round = 0; round < 10; round++) {
        auto io = Open(file.Path());
        std::thread([&] { WriteAndReadBack(*io, 0, MIB, 16); }).join();
        std::atomic<bool> used{false}, closed{false};
        std::thread survivor([&] {
            WriteAndReadBack(*io, MIB, MIB, 16);
            used = true;
            while (!closed) {
                std::this_thread::yield();
            }
            auto again = Open(file.Path());
            WriteAndReadBack(*again, MIB, MIB, 0);
        });
        while (!used) {
            std::this_thread::yield();
        }
        io.reset();
        closed = true;
        survivor.join();
    }
}

TEST_P(EngineTest, AGrowingFileGrows) {
    TemporaryFile file(0);
    DeviceOptions options = Options();
    options.growing_file = true;
    auto io = Open(file.Path(), options);
    EXPECT_EQ(io->Caps().capacity_bytes, 0u);
    WriteAndReadBack(*io, 8192, 300 * KIB, 16);
    struct stat status;
    ASSERT_EQ(stat(file.Path().c_str(), &status), 0);
    EXPECT_EQ(status.st_size, static_cast<off_t>(8192 + 300 * KIB));
    std::vector<char> back(8192);
    Error error = CatchError([&] { io->Read(MIB, back.data(), back.size()); });
    EXPECT_NE(std::string(error.what()).find("past the end"), std::string::npos) << error.what();
    ASSERT_EQ(truncate(file.Path().c_str(), 1000), 0);
    EXPECT_EQ(CatchError([&] { io->Read(0, back.data(), back.size()); }).Code(), ErrorCode::IO);
    EXPECT_TRUE(io->Deallocate({{0, 4096}}));
}

TEST_P(EngineTest, AFileWithoutRoomIsRefused) {
    TemporaryFile file(0);
    EXPECT_EQ(CatchError([&] { Open(file.Path()); }).Code(), ErrorCode::INVALID);
}

TEST_P(EngineTest, DeallocateMakesAHole) {
    TemporaryFile file(FILE_BYTES);
    auto io = Open(file.Path());
    WriteAndReadBack(*io, 0, 4 * MIB, 0);
    io->Flush();
    EXPECT_TRUE(io->Deallocate({{MIB, MIB}}));
    std::vector<char> back(MIB, 'x');
    io->Read(MIB, back.data(), back.size());
    EXPECT_EQ(back, std::vector<char>(MIB, 0));
}

TEST_P(EngineTest, ReadOnlyWhenAskedFor) {
    TemporaryFile file(FILE_BYTES);
    DeviceOptions options = Options();
    options.read_only = true;
    auto io = Open(file.Path(), options);
    EXPECT_TRUE(io->Caps().read_only);
    EXPECT_FALSE(io->Caps().deallocate);
    std::vector<char> back(4096);
    io->Read(0, back.data(), back.size());
    EXPECT_EQ(CatchError([&] { io->Write(0, back.data(), back.size()); }).Code(), ErrorCode::READ_ONLY);
}

TEST_P(EngineTest, ReadOnlyWhenNothingElseIsPermitted) {
    if (!WorksInChildren()) {
        GTEST_SKIP() << GetParam() << " does not work in the child which becomes another user";
    }
    TemporaryFile file(FILE_BYTES);
    ASSERT_EQ(chmod(file.Path().c_str(), 0444), 0);
    EXPECT_TRUE(InChild([&] {
        if (getuid() == 0 &&
            (setgid(65534) != 0 || setuid(65534) != 0 || access(file.Path().c_str(), R_OK) != 0)) {
            return true; // the path itself is out of reach for another user
        }
        auto io = Open(file.Path());
        std::vector<char> back(4096);
        io->Read(0, back.data(), back.size());
        return io->Caps().read_only;
    }));
}

TEST_P(EngineTest, CommandSizeIsSettable) {
    TemporaryFile file(FILE_BYTES);
    EXPECT_LE(Open(file.Path())->Caps().max_transfer_bytes, 256 * KIB);
    DeviceOptions options = Options();
    options.max_transfer_bytes = 1 * MIB;
    auto io = Open(file.Path(), options);
    EXPECT_EQ(io->Caps().max_transfer_bytes, 1 * MIB);
    WriteAndReadBack(*io, 0, 5 * MIB, 16);
    for (uint32_t impossible : {100u, 128u * 1024u * 1024u}) {
        options.max_transfer_bytes = impossible;
        EXPECT_EQ(CatchError([&] { Open(file.Path(), options); }).Code(), ErrorCode::INVALID);
    }
}

TEST_P(EngineTest, ATargetThatWasReplacedIsRefused) {
    TemporaryFile file(FILE_BYTES), other(FILE_BYTES);
    Target target = ResolveTarget(file.Path());
    target.path = other.Path();
    Error error = CatchError([&] { OpenDevice(target, Options()); });
    EXPECT_NE(std::string(error.what()).find("was replaced"), std::string::npos) << error.what();
}

TEST_P(EngineTest, TheParentGoesOnAfterAFork) {
    TemporaryFile file(FILE_BYTES);
    auto io = Open(file.Path());
    WriteAndReadBack(*io, 0, MIB, 16);
    EXPECT_TRUE(InChild([&] {
        std::vector<char> data(4096);
        bool refused = false;
        try {
            io->Read(0, data.data(), data.size());
        } catch (const Error &error) {
            refused = error.Code() == ErrorCode::UNSUPPORTED;
        }
        io.reset();
        try {
            Open(file.Path())->Read(0, data.data(), data.size());
            return refused && WorksInChildren();
        } catch (const Error &error) {
            return refused && !WorksInChildren() && error.Code() == ErrorCode::UNSUPPORTED;
        }
    }));
    WriteAndReadBack(*io, 0, MIB, 16);
}

TEST_P(EngineTest, ALoopDevice) {
    TemporaryFile file(FILE_BYTES);
    LoopDevice loop(file.Path());
    if (loop.Path().empty()) {
        GTEST_SKIP() << "losetup cannot make a loop device here";
    }
    TargetInfo info = InspectTarget(ResolveTarget(loop.Path()));
    EXPECT_EQ(info.capacity_bytes, FILE_BYTES);
    EXPECT_EQ(info.lba_size, 512u);
    EXPECT_GT(info.max_transfer_bytes, 0u);
    auto io = Open(loop.Path());
    EXPECT_EQ(io->Caps().memory_alignment, info.memory_alignment);
    WriteAndReadBack(*io, 512, 3 * MIB + 512, 16);
    WriteAndReadBack(*io, FILE_BYTES - 4096, 4096, 0);
    io->Flush();
    if (io->Caps().deallocate) {
        EXPECT_TRUE(io->Deallocate({{0, MIB}}));
    }
}

TEST_P(EngineTest, ProgramsThatAreStartedInheritNothing) {
    TemporaryFile file(FILE_BYTES);
    auto io = Open(file.Path());
    WriteAndReadBack(*io, 0, MIB, 0);
    int of_the_file = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[4096] = {};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        if (readlink(link.c_str(), path, sizeof path - 1) > 0 && path == file.Path()) {
            of_the_file++;
            EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << "descriptor " << fd;
        }
    }
    EXPECT_GT(of_the_file, 0);
}

//! No deeper than asked for, whatever sizes the engine's own queues come in.
TEST_P(EngineTest, QueuesOfAnyDepth) {
    TemporaryFile file(FILE_BYTES);
    for (uint32_t depth : {1u, 3u, 100u, 4096u}) {
        DeviceOptions options = Options();
        options.max_transfer_bytes = 4096;
        auto io = Open(file.Path(), options, depth);
        WriteAndReadBack(*io, 0, 2 * MIB, 0);
        EXPECT_LE(io->Stats().Snapshot(IoOperation::READ).depth_max, depth);
        EXPECT_LE(io->Stats().Snapshot(IoOperation::READ).depth_max, io->Caps().max_queue_depth);
    }
}

TEST_P(EngineTest, AQueueSaysWhenItIsFull) {
    TemporaryFile file(FILE_BYTES);
    auto device = OpenDevice(ResolveTarget(file.Path()), Options());
    auto queue = device->CreateQueue(3, QueueUse::OWNED);
    const uint32_t depth = queue->Depth();
    EXPECT_LE(depth, 3u);
    AlignedBuffer buffer((depth + 1) * 4096);
    std::vector<Command> commands(depth + 1);
    for (uint32_t i = 0; i <= depth; i++) {
        commands[i].length = 4096;
        commands[i].device_offset = i * 4096;
        commands[i].data = buffer.Data() + i * 4096;
        EXPECT_EQ(queue->Submit(commands[i]), i < depth) << i;
    }
    std::vector<Command *> completed(depth);
    for (uint32_t reaped = 0; reaped < depth;) {
        reaped += queue->Reap(completed.data(), depth - reaped, true);
    }
    EXPECT_TRUE(queue->Submit(commands[depth]));
    EXPECT_EQ(queue->Reap(completed.data(), 1, true), 1u);
    EXPECT_EQ(commands[depth].result, 4096);
}

TEST_P(EngineTest, AFailedWriteIsNamedAndTheNextSucceeds) {
    TemporaryFile file(FILE_BYTES);
    auto io = Open(file.Path());
    const auto data = Pattern(4 * MIB, 3);
    WriteAndReadBack(*io, 0, MIB, 0);
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    rlimit small = before;
    small.rlim_cur = 8 * MIB;
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Error error = CatchError([&] { io->Write(8 * MIB, data.data(), data.size()); });
    WriteAndReadBack(*io, 4 * MIB, 4 * MIB, 0);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_NE(std::string(error.what()).find("File too large (errno 27)"), std::string::npos) << error.what();
    WriteAndReadBack(*io, 8 * MIB, 4 * MIB, 0);
}

std::vector<std::string> EnginesOnFiles() {
    std::vector<std::string> engines = XnvmeEnginesOnFiles();
    engines.insert(engines.end(), {"posix", "io_uring"});
    return engines;
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineTest, ::testing::ValuesIn(EnginesOnFiles()), [](const auto &engine) {
    std::string name = engine.param;
    std::replace(name.begin(), name.end(), ':', '_');
    return name;
});

TEST(IoUring, RunningOutOfDescriptorsIsNoErrorAndIsTold) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer needs file descriptors of its own for its checks";
#endif
    if (!IoUringObstacle().empty()) {
        GTEST_SKIP() << "no io_uring here: " << IoUringObstacle();
    }
    TemporaryFile file(FILE_BYTES);
    Target target = ResolveTarget(file.Path());
    auto io = std::make_unique<BlockIo>(OpenDevice(target, {}), BlockIoOptions(), target.name,
                                        std::make_shared<IoStats>());
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    rlimit none = before;
    none.rlim_cur = 0;
    std::vector<char> data(4096);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    io->Read(0, data.data(), data.size());
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_NE(io->EngineReason().find("ulimit -n"), std::string::npos) << io->EngineReason();
    io->Read(0, data.data(), data.size());
}

TEST(NvmeResult, ErrnoStatusAndSuccessAreToldApart) {
    Command command;
    command.length = 4096;
    SetNvmeResult(command, -EFAULT);
    EXPECT_EQ(command.result, -EFAULT);
    EXPECT_EQ(command.nvme_status, 0);
    SetNvmeResult(command, -EINTR);
    EXPECT_EQ(command.result, -EAGAIN) << "what the kernel has cancelled is sent again";
    EXPECT_EQ(command.nvme_status, 0x371);
    command.nvme_status = 0;
    SetNvmeResult(command, 0);
    EXPECT_EQ(command.result, 4096);
    SetNvmeResult(command, 0x281);
    EXPECT_EQ(command.result, -EIO);
    EXPECT_EQ(command.nvme_status, 0x281);
}

TEST(OpenDevice, AutoSaysWhatItChoseAndWhy) {
    TemporaryFile file(FILE_BYTES);
    auto device = OpenDevice(ResolveTarget(file.Path()), {});
    const std::string &reason = device->Caps().engine_reason;
    EXPECT_EQ(device->Caps().engine, IoUringObstacle().empty() ? "io_uring" : "posix");
    EXPECT_EQ(reason.find("auto: "), 0u) << reason;
}

TEST(OpenDevice, RefusesUnknownEngines) {
    TemporaryFile file(FILE_BYTES);
    DeviceOptions options;
    options.engine = "spdk";
    Error error = CatchError([&] { OpenDevice(ResolveTarget(file.Path()), options); });
    EXPECT_EQ(error.Code(), ErrorCode::INVALID);
    EXPECT_NE(std::string(error.what()).find("auto, io_uring_cmd, nvme_ioctl, io_uring, posix"),
              std::string::npos)
        << error.what();
    options.engine = "memory";
    EXPECT_EQ(CatchError([&] { OpenDevice(ResolveTarget(file.Path()), options); }).Code(),
              ErrorCode::INVALID);
}

TEST(OpenDevice, PassthroughIsRefusedWhereThereIsNoNvme) {
    TemporaryFile file(FILE_BYTES);
    for (const char *engine : {"io_uring_cmd", "nvme_ioctl"}) {
        DeviceOptions options;
        options.engine = engine;
        Error error = CatchError([&] { OpenDevice(ResolveTarget(file.Path()), options); });
        EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
        EXPECT_NE(std::string(error.what()).find("this is a regular file"), std::string::npos)
            << error.what();
    }
}

TEST(OpenDevice, NvmeCharacterDevices) {
    const std::string directory = TemporaryFile(0).Path() + ".dir";
    ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
    const std::string generic = directory + "/ng0n1", controller = directory + "/nvme0";
    const bool made = mknod(generic.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0 &&
                      mknod(controller.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0;
    if (made) {
        Error error = CatchError([&] { ResolveTarget(generic); });
        EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED) << "no namespace, whatever its name";
        EXPECT_NE(std::string(error.what()).find("its block device is not there"), std::string::npos)
            << error.what();
        error = CatchError([&] { ResolveTarget(controller); });
        EXPECT_EQ(error.Code(), ErrorCode::INVALID);
        EXPECT_NE(std::string(error.what()).find("controller, not a namespace"), std::string::npos);
    }
    unlink(generic.c_str());
    unlink(controller.c_str());
    rmdir(directory.c_str());
    if (!made) {
        GTEST_SKIP() << "mknod is not permitted here";
    }
}

} // namespace
} // namespace rawduck
