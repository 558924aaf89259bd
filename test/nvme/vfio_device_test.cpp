//! What an NVMe driver of our own has to stand on a real PCI function: other processes, memory that goes away,
//! devices that do not answer or are taken away. RAWDUCK_TEST_VFIO names a namespace on vfio-pci, as in
//! vfio:0000:01:00.0n1, WHOSE CONTENTS ARE DESTROYED; test/nvme/guest.sh sets it in a guest.
#include "common/memory/buffers/buffer_memory.hpp"
#include "io/block_io.hpp"
#include "io/open_device.hpp"
#include "support/test_support.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>

namespace rawduck {
namespace {

using std::chrono::milliseconds;

constexpr uid_t NOBODY = 65534;

std::string LinkName(const std::string &path) {
    char buffer[PATH_MAX];
    const ssize_t length = readlink(path.c_str(), buffer, sizeof buffer);
    return length <= 0 ? "" : BaseName(std::string(buffer, static_cast<size_t>(length)));
}

void WriteText(const std::string &path, const std::string &text) {
    std::ofstream stream(path);
    stream << text << std::flush;
    EXPECT_TRUE(stream.good()) << path;
}

class VfioTest : public ::testing::Test {
  protected:
    void SetUp() override { Use("RAWDUCK_TEST_VFIO"); }

    void Use(const char *variable) {
        const char *name = getenv(variable);
        if (!name) {
            GTEST_SKIP() << variable << " names no namespace; make test-nvme runs this in a guest";
        }
        target_ = ResolveTarget(name);
        ASSERT_EQ(target_.kind, TargetKind::VFIO_FUNCTION) << name;
    }
    std::unique_ptr<BlockIo> Open() const {
        return std::make_unique<BlockIo>(OpenDevice(target_, DeviceOptions()), BlockIoOptions(), target_.name,
                                         std::make_shared<IoStats>());
    }
    std::string Directory() const { return "/sys/bus/pci/devices/" + target_.path; }
    //! In a process of a user who may open the function, and lock so much.
    bool AsNobody(rlim_t locked_bytes, const std::function<bool()> &body) const {
        return InChild([&] {
            const rlimit limit = {locked_bytes, locked_bytes};
            return setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0 &&
                   body();
        });
    }
    std::string GroupPath() const { return "/dev/vfio/" + LinkName(Directory() + "/iommu_group"); }

    Target target_;
};

//! What a device would go on transferring to, if its address had been registered: pages that were given back,
//! and others that came in their place. A transfer to the old ones succeeds, and its data is nowhere.
TEST_F(VfioTest, MemoryThatGoesAwayBetweenTransfersIsNeverMissed) {
    constexpr uint64_t LENGTH = 256 * KIB;
    auto io = Open();
    const auto data = Pattern(LENGTH, 31);
    io->Write(8 * MIB, data.data(), LENGTH);
    const auto map = [&](void *at) {
        return mmap(at, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0),
                    -1, 0);
    };
    void *const memory = map(nullptr);
    ASSERT_NE(memory, MAP_FAILED);
    const auto expect_read = [&](const char *after) {
        io->Read(8 * MIB, memory, LENGTH);
        EXPECT_EQ(memcmp(memory, data.data(), LENGTH), 0) << after;
        std::vector<char> back(LENGTH);
        io->Write(9 * MIB, memory, LENGTH);
        io->Read(9 * MIB, back.data(), LENGTH);
        EXPECT_EQ(back, data) << after;
    };
    expect_read("the first transfer");
    for (int round = 0; round < 20; round++) {
        ASSERT_EQ(madvise(memory, LENGTH, MADV_DONTNEED), 0);
        expect_read("MADV_DONTNEED");
        ASSERT_EQ(munmap(memory, LENGTH), 0);
        ASSERT_EQ(map(memory), memory);
        expect_read("munmap and mmap");
        ASSERT_TRUE(InChild([] { return true; }));
        std::fill_n(static_cast<char *>(memory), LENGTH, '\0'); // copied on write, if the child still has it
        expect_read("fork");
    }
    munmap(memory, LENGTH);
}

//! The memory that DuckDB reads into, when it is rawduck's: in place, and right also after its pages were given back.
TEST_F(VfioTest, BuffersOfOurOwnAreTransferredInPlaceAndNeverToPagesOfBefore) {
    constexpr uint64_t LENGTH = 256 * KIB;
    BufferMemory *const memory = BufferMemory::OfProcess();
    ASSERT_NE(memory, nullptr);
    auto io = Open();
    const auto data = Pattern(LENGTH, 53);
    io->Write(8 * MIB, data.data(), LENGTH);
    const uint64_t copied = io->Stats().Snapshot(IoOperation::WRITE).bounce_bytes;
    for (int round = 0; round < 20; round++) {
        char *const block = memory->Allocate(LENGTH);
        ASSERT_NE(block, nullptr);
        memset(block, round, LENGTH);
        io->Read(8 * MIB, block, LENGTH);
        EXPECT_EQ(memcmp(block, data.data(), LENGTH), 0) << round;
        io->Write(9 * MIB, block, LENGTH);
        memory->Free(block);
        memory->GiveBackUnused();
        memory->GiveBackUnused();
    }
    EXPECT_EQ(io->Stats().Snapshot(IoOperation::READ).bounce_bytes, 0u);
    EXPECT_EQ(io->Stats().Snapshot(IoOperation::WRITE).bounce_bytes, copied);
}

TEST_F(VfioTest, ASecondProcessIsToldWhoHasIt) {
    auto io = Open();
    const std::string holder = "process " + std::to_string(getpid());
    EXPECT_TRUE(InChild([&] {
        const Error error = CatchError([&] { Open(); });
        return error.Code() == ErrorCode::LOCKED && strstr(error.what(), holder.c_str()) != nullptr;
    }));
    std::vector<char> data(4096);
    io->Read(0, data.data(), data.size()); // the attempt has not harmed it
}

TEST_F(VfioTest, TwoTargetsOfOneProcessShareAController) {
    auto first = Open(), second = Open();
    const auto data = Pattern(64 * KIB, 37);
    std::vector<char> back(data.size());
    first->Write(8 * MIB, data.data(), data.size());
    first.reset();
    second->Read(8 * MIB, back.data(), back.size());
    EXPECT_EQ(back, data);
}

//! It would, if it kept a descriptor or the registers: then nobody could open the function before it ends.
TEST_F(VfioTest, AForkedChildDoesNotKeepTheController) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        auto io = Open();
        const pid_t child = fork();
        if (child == 0) {
            pause();
            _exit(0);
        }
        const bool good = write(told[1], &child, sizeof child) == sizeof child;
        kill(good ? getpid() : child, SIGKILL);
        _exit(1);
    }
    pid_t child = 0;
    close(told[1]);
    ASSERT_EQ(read(told[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
    close(told[0]);
    waitpid(parent, nullptr, 0);
    EXPECT_EQ(kill(child, 0), 0) << "the child has ended, so this shows nothing";
    std::vector<char> data(4096);
    Open()->Read(0, data.data(), data.size());
    kill(child, SIGKILL);
}

TEST_F(VfioTest, AUserWhoMayOpenTheGroupNeedsNoMore) {
    ASSERT_EQ(chown(GroupPath().c_str(), NOBODY, NOBODY), 0);
    EXPECT_TRUE(AsNobody(8 * MIB, [&] {
        auto io = Open();
        const auto data = Pattern(2 * MIB, 41);
        std::vector<char> back(data.size());
        io->Write(8 * MIB, data.data(), data.size());
        io->Read(8 * MIB, back.data(), back.size());
        return back == data;
    }));
    EXPECT_TRUE(AsNobody(16 * KIB, [&] {
        const Error error = CatchError([&] { Open(); });
        return error.Code() == ErrorCode::PERMISSION && strstr(error.what(), "ulimit -l") != nullptr;
    }));
    ASSERT_EQ(chown(GroupPath().c_str(), 0, 0), 0);
    EXPECT_TRUE(AsNobody(8 * MIB, [&] {
        const Error error = CatchError([&] { Open(); });
        return error.Code() == ErrorCode::PERMISSION && strstr(error.what(), "--user") != nullptr;
    }));
}

//! What may be locked is less than a buffer for each of them.
TEST_F(VfioTest, ManyThreadsOfAUserWhoMayLockLittleWaitForEachOther) {
    constexpr uint64_t THREADS = 48, LENGTH = 256 * KIB;
    ASSERT_EQ(chown(GroupPath().c_str(), NOBODY, NOBODY), 0);
    EXPECT_TRUE(AsNobody(8 * MIB, [&] {
        auto io = Open();
        std::atomic<uint64_t> done{0}, begun{0};
        std::vector<std::thread> threads;
        for (uint64_t t = 0; t < THREADS; t++) {
            threads.emplace_back([&, t] {
                const auto data = Pattern(LENGTH, static_cast<uint32_t>(t));
                std::vector<char> back;
                for (int round = 0; round < 4; round++) {
                    back.assign(LENGTH, 0);
                    try {
                        io->Write(8 * MIB + t * LENGTH, data.data(), LENGTH);
                        io->Read(8 * MIB + t * LENGTH, back.data(), LENGTH);
                        io->Flush();
                    } catch (const Error &error) {
                        std::fprintf(stderr, "thread %d: %s\n", static_cast<int>(t), error.what());
                        back.clear();
                    }
                    done += back == data ? 1 : 0;
                    begun += round == 0 ? 1 : 0;
                    while (begun < THREADS) { // each has had some, and sleeps with what it has kept
                        std::this_thread::sleep_for(milliseconds(1));
                    }
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        return done == 4 * THREADS;
    }));
    ASSERT_EQ(chown(GroupPath().c_str(), 0, 0), 0);
}

//! Reads into more blocks than may be registered, which are copied then, and into memory that always is.
void ReadIntoManyBlocks(BlockIo &io, uint64_t blocks) {
    constexpr uint64_t LENGTH = 256 * KIB;
    BufferMemory *const memory = BufferMemory::OfProcess();
    ASSERT_NE(memory, nullptr);
    const auto data = Pattern(LENGTH, 61);
    io.Write(8 * MIB, data.data(), LENGTH);
    std::vector<char *> all;
    for (uint64_t i = 0; i < blocks; i++) {
        all.push_back(memory->Allocate(LENGTH));
        ASSERT_NE(all.back(), nullptr);
        io.Read(8 * MIB, all.back(), LENGTH);
        EXPECT_EQ(memcmp(all.back(), data.data(), LENGTH), 0) << i;
    }
    std::thread([&] { // has no buffers for copies yet
        std::vector<char> back(LENGTH);
        EXPECT_NO_THROW(io.Read(8 * MIB, back.data(), LENGTH));
        EXPECT_EQ(back, data);
    })
        .join();
    for (char *const block : all) {
        memory->Free(block);
    }
}

//! Of a process, or of root in a container, where memory is counted as for everybody.
TEST_F(VfioTest, WhatMayBeLockedIsLeftForCopies) {
    EXPECT_TRUE(InChild([&] {
        __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
        const rlimit limit = {64 * MIB, 64 * MIB};
        if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || syscall(SYS_capget, &header, data) != 0) {
            return false;
        }
        data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
        if (syscall(SYS_capset, &header, data) != 0) {
            return false;
        }
        auto io = Open();
        ReadIntoManyBlocks(*io, 300);
        const uint64_t copied = io->Stats().Snapshot(IoOperation::READ).bounce_bytes / MIB;
        return !::testing::Test::HasFailure() && copied > 300 / 4 - 33 && copied < 300 / 4 + 1;
    }));
}

TEST_F(VfioTest, MappingsAreLeftForCopies) {
    const std::string limit = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";
    const std::string usual = ReadAttribute(limit);
    WriteText(limit, "64");
    EXPECT_NO_THROW(ReadIntoManyBlocks(*Open(), 100));
    WriteText(limit, usual);
}

TEST_F(VfioTest, ANamespaceThatIsNotThereIsNamed) {
    target_ = ResolveTarget("vfio:" + target_.path + "n77");
    EXPECT_EQ(CatchError([&] { Open(); }).Code(), ErrorCode::NOT_FOUND);
}

//! Another driver asks for it: the kernel waits until it was given back, which happens without a command.
TEST_F(VfioTest, TheKernelGetsItBackAtOnce) {
    auto io = Open();
    std::vector<char> data(4096);
    io->Read(0, data.data(), data.size());
    const auto start = std::chrono::steady_clock::now();
    WriteText("/sys/bus/pci/drivers/vfio-pci/unbind", target_.path);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    const std::string message = CatchError([&] { io->Read(0, data.data(), data.size()); }).what();
    EXPECT_NE(message.find("the kernel wants the device back"), std::string::npos) << message;
    EXPECT_NE(message.find(target_.name + ": read of 4096 bytes"), std::string::npos) << message;
    const Error error = CatchError([&] { Open(); });
    EXPECT_NE(std::string(error.what()).find("rawduck vfio bind " + target_.path), std::string::npos)
        << error.what();
    WriteText("/sys/bus/pci/drivers_probe", target_.path);
    EXPECT_EQ(LinkName(Directory() + "/driver"), "vfio-pci");
    Open()->Read(0, data.data(), data.size()); // and the old one only ends
}

//! Somebody resets the function by itself, with commands in flight.
TEST_F(VfioTest, AResetFromOutsideIsSurvived) {
    auto io = Open();
    std::atomic<bool> over{false};
    std::thread resets([&] {
        for (int i = 0; i < 2; i++) {
            std::this_thread::sleep_for(milliseconds(500));
            WriteText(Directory() + "/reset", "1");
        }
        over = true;
    });
    const auto data = Pattern(128 * KIB, 43);
    std::vector<char> back(data.size());
    try {
        for (int round = 0; !over || round < 10; round++) {
            io->Write(8 * MIB, data.data(), data.size());
            io->Read(8 * MIB, back.data(), back.size());
            io->Flush();
            EXPECT_EQ(back, data) << round;
        }
    } catch (const Error &error) {
        ADD_FAILURE() << error.what();
    }
    resets.join();
}

//! RAWDUCK_TEST_VFIO_LINK names a namespace behind a PCI bridge of its own, which forwards nothing any more.
class VfioLinkTest : public VfioTest {
  protected:
    void SetUp() override { Use("RAWDUCK_TEST_VFIO_LINK"); }

    //! The bridge's command register: what it forwards.
    void Forward(bool on) const {
        char link[PATH_MAX];
        ASSERT_NE(realpath((Directory() + "/..").c_str(), link), nullptr);
        const int fd = open((std::string(link) + "/config").c_str(), O_RDWR | O_CLOEXEC);
        ASSERT_GE(fd, 0) << link;
        uint16_t command = 0;
        ASSERT_EQ(pread(fd, &command, sizeof command, 4), 2);
        command = static_cast<uint16_t>(on ? command | 7 : command & ~7);
        ASSERT_EQ(pwrite(fd, &command, sizeof command, 4), 2);
        close(fd);
    }
};

TEST_F(VfioLinkTest, ALinkThatIsLostIsTheEndOfItAndIsNamed) {
    auto io = Open();
    const auto data = Pattern(64 * KIB, 47);
    std::vector<char> back(data.size());
    io->Write(8 * MIB, data.data(), data.size());
    Forward(false);
    const std::string message = CatchError([&] { io->Read(8 * MIB, back.data(), back.size()); }).what();
    EXPECT_TRUE(message.find("its link is lost") != std::string::npos ||
                message.find("has left the bus") != std::string::npos)
        << message;
    EXPECT_NE(message.find(target_.name + ": read of "), std::string::npos) << message;
    EXPECT_EQ(CatchError([&] { io->Flush(); }).Code(), ErrorCode::IO);
    io.reset();
    Forward(true);
    Open()->Read(8 * MIB, back.data(), back.size());
    EXPECT_EQ(back, data);
}

//! RAWDUCK_TEST_VFIO_SLOW names a namespace that takes 1 MiB in a second, and writes what it is given late. The driver
//! waits for a second, as the kernel's would.
class VfioSlowTest : public VfioTest {
  protected:
    static constexpr const char *TIMEOUT = "/sys/module/nvme_core/parameters/io_timeout";
    static constexpr uint64_t PIECE = 256 * KIB; //!< of what is copied

    void SetUp() override {
        Use("RAWDUCK_TEST_VFIO_SLOW");
        if (!IsSkipped()) {
            timeout_ = ReadAttribute(TIMEOUT);
            WriteText(TIMEOUT, "1");
        }
    }
    void TearDown() override {
        if (!timeout_.empty()) {
            WriteText(TIMEOUT, timeout_);
        }
    }

    std::string timeout_;
};

TEST_F(VfioSlowTest, WhatIsNotDoneInTimeIsSentAgainAfterTheControllerWasDisabled) {
    auto io = Open();
    const auto data = Pattern(6 * PIECE, 59);
    std::vector<char> back(data.size());
    io->Write(8 * MIB, data.data(), data.size());
    EXPECT_GT(io->Stats().Snapshot(IoOperation::WRITE).commands, 6u) << "nothing was sent again";
    io->Read(8 * MIB, back.data(), back.size());
    EXPECT_EQ(back, data);
}

//! The memory is the caller's again once the write has failed: what it holds then must never reach the device.
TEST_F(VfioSlowTest, AWriteThatIsNeverDoneInTimeFailsAndNothingOfItComesLater) {
    constexpr uint64_t LENGTH = 4 * MIB;
    constexpr int LATER_MS = 3000;
    auto io = Open();
    BufferMemory *const memory = BufferMemory::OfProcess();
    char *const data = memory ? memory->Allocate(LENGTH) : nullptr;
    ASSERT_NE(data, nullptr) << "only memory of this kind is transferred in place";
    memset(data, 'a', LENGTH);
    const std::string message = CatchError([&] { io->Write(16 * MIB, data, LENGTH); }).what();
    EXPECT_NE(message.find(target_.name + ": write of "), std::string::npos) << message;
    EXPECT_NE(message.find("(LBA "), std::string::npos) << message;
    EXPECT_NE(message.find("did not complete a command in time"), std::string::npos) << message;
    EXPECT_EQ(io->Stats().Snapshot(IoOperation::WRITE).bounce_bytes, 0u);
    memset(data, 'z', LENGTH);
    const auto end = std::chrono::steady_clock::now() + milliseconds(LATER_MS);
    std::vector<char> back(LENGTH);
    do { // reads are not slow: the controller was started anew
        io->Read(16 * MIB, back.data(), LENGTH);
        EXPECT_EQ(std::count(back.begin(), back.end(), 'z'), 0);
    } while (std::chrono::steady_clock::now() < end);
    EXPECT_GT(std::count(back.begin(), back.end(), 'a'), 0);
    memory->Free(data);
}

} // namespace
} // namespace rawduck
