//! The engines on a real NVMe namespace. RAWDUCK_TEST_NVME names its character or block device, WHOSE
//! CONTENTS ARE DESTROYED; test/nvme/run.sh sets it in a guest with emulated devices.
#include "io/block_io.hpp"
#include "io/engine/io_uring_cmd.hpp"
#include "io/engine/ring/ring_buffers.hpp"
#include "io/engine/xnvme/xnvme.hpp"
#include "io/open_device.hpp"
#include "memory_with_decoy.hpp"
#include "support/test_support.hpp"
#include "target/inspect.hpp"
#include "target/lock/target_lock.hpp"
#include "target/nvme/nvme_node.hpp"
#include "target/occupants/occupants.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <regex>
#include <sstream>
#include <sys/stat.h>
#include <thread>

namespace rawduck {
namespace {

//! Of xNVMe's none where they are not built; NvmeXnvmeTest says so.
std::vector<std::string> Engines() {
    std::vector<std::string> engines = {"io_uring_cmd", "nvme_ioctl", "io_uring", "posix", "vfio"};
    if (XnvmeObstacle().empty()) {
        for (const std::string &name : XnvmeInterfaceNames()) {
            engines.push_back("xnvme:" + name);
        }
    }
    return engines;
}

class NvmeTest : public ::testing::Test {
  protected:
    void SetUp() override {
        const char *name = getenv("RAWDUCK_TEST_NVME");
        if (!name) {
            GTEST_SKIP() << "RAWDUCK_TEST_NVME names no device; make test-nvme runs this in a guest";
        }
        target_ = ResolveTarget(name);
        if (OnVfio()) {
            return; // there are no nodes
        }
        for (const Occupant &occupant : FindOccupants(target_)) {
            ASSERT_TRUE(occupant.forceable) << name << ": " << occupant.what;
        }
        const Target block = BlockDeviceOf(target_);
        struct stat status;
        ASSERT_EQ(stat(block.path.c_str(), &status), 0);
        block_ = ResolveTarget(block.path);
        generic_ = ResolveTarget(NvmeGenericPath(status.st_rdev));
    }

    std::unique_ptr<BlockIo> Open(const std::string &engine, const std::string &mode,
                                  uint32_t max_transfer = 0, bool polling = false) {
        DeviceOptions options;
        options.engine = engine;
        options.max_transfer_bytes = max_transfer;
        options.polling = polling;
        BlockIoOptions io;
        io.queue_mode = ParseQueueMode(mode);
        stats_ = std::make_shared<IoStats>();
        return std::make_unique<BlockIo>(OpenDevice(target_, options), io, target_.name, stats_);
    }

    //! Why it cannot be used here; empty: it can.
    std::string Obstacle(const std::string &engine) {
        try {
            Open(engine, "thread");
            return "";
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED) << error.what();
            return error.what();
        }
    }
    static bool DrivesController(const std::string &engine) {
        return engine == "vfio" || XnvmeDrivesController(engine);
    }

    bool OnVfio() const { return target_.kind == TargetKind::VFIO_FUNCTION; }
    bool IsQemus() const {
        return OnVfio() ? ReadAttribute("/sys/bus/pci/devices/" + target_.path + "/vendor") == QEMU_VENDOR
                        : InspectTarget(block_).model == "QEMU NVMe Ctrl";
    }

    static constexpr const char *QEMU_VENDOR = "0x1b36";
    Target target_, block_, generic_;
    std::shared_ptr<IoStats> stats_;
};

TEST_F(NvmeTest, BothNodesAreOneTarget) {
    EXPECT_EQ(block_.identity, generic_.identity);
    EXPECT_EQ(generic_.kind, TargetKind::NVME_CHARACTER_DEVICE);
    TargetLock lock(generic_, TargetLock::Mode::EXCLUSIVE);
    EXPECT_EQ(CatchError([&] { TargetLock(block_, TargetLock::Mode::SHARED); }).Code(), ErrorCode::LOCKED);
}

TEST_F(NvmeTest, BothNodesSayTheSame) {
    const TargetInfo block = InspectTarget(block_), generic = InspectTarget(generic_);
    ASSERT_TRUE(block.nvme && generic.nvme);
    EXPECT_EQ(block.capacity_bytes, generic.capacity_bytes);
    EXPECT_EQ(block.lba_size, generic.lba_size);
    EXPECT_EQ(block.volatile_write_cache, generic.volatile_write_cache) << "sysfs and Identify must agree";
    EXPECT_EQ(block.passthrough_path, generic_.path);
    EXPECT_GT(block.max_passthrough_bytes, 0u);
}

TEST_F(NvmeTest, AutoTakesPassthroughOnTheCharacterDeviceAndSaysWhy) {
    auto device = OpenDevice(target_, DeviceOptions());
    const bool passthrough =
        target_.kind == TargetKind::NVME_CHARACTER_DEVICE || InspectTarget(target_).nvme->fdp;
    const std::string expected = !passthrough                   ? "io_uring"
                                 : IoUringCmdObstacle().empty() ? "io_uring_cmd"
                                                                : "nvme_ioctl";
    EXPECT_EQ(device->Caps().engine, expected);
    EXPECT_EQ(device->Caps().engine_reason.find("auto: "), 0u) << device->Caps().engine_reason;
}

TEST_F(NvmeTest, ControllersAndWrongEnginesAreRefused) {
    const std::string base = block_.path.substr(0, block_.path.rfind('n'));
    EXPECT_EQ(CatchError([&] { ResolveTarget(base); }).Code(), ErrorCode::INVALID);
    DeviceOptions options;
    options.engine = "io_uring";
    const Error error = CatchError([&] { OpenDevice(generic_, options); });
    EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find(block_.path), std::string::npos) << error.what();
}

TEST_F(NvmeTest, AUserWithoutPermissionIsToldWhatToDo) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    EXPECT_TRUE(InChild([&] {
        if (setgid(65534) != 0 || setuid(65534) != 0) {
            return false;
        }
        try {
            OpenDevice(generic_, DeviceOptions());
        } catch (const Error &error) {
            return error.Code() == ErrorCode::PERMISSION &&
                   std::string(error.what()).find("udev rule") != std::string::npos;
        }
        return false;
    }));
}

//! By all NVMe devices, but for those of the queues for administration.
uint64_t InterruptsOfQueues() {
    static const std::regex queue("nvme[0-9]+q[1-9][0-9]*");
    std::ifstream file("/proc/interrupts");
    uint64_t total = 0;
    for (std::string line; std::getline(file, line);) {
        if (!std::regex_search(line, queue)) {
            continue;
        }
        std::istringstream words(line);
        std::string number;
        words >> number; // of the interrupt; then one count for each processor
        for (uint64_t count = 0; words >> count;) {
            total += count;
        }
    }
    return total;
}

//! Writes and reads back from four threads; the interrupts meanwhile.
uint64_t InterruptsOfTransfers(BlockIo &io) {
    const auto data = Pattern(256 * KIB, 23);
    const uint64_t before = InterruptsOfQueues();
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            std::vector<char> back(data.size());
            io.Write(40 * MIB + t * MIB, data.data(), data.size());
            io.Read(40 * MIB + t * MIB, back.data(), back.size());
            EXPECT_EQ(back, data);
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    return InterruptsOfQueues() - before;
}

TEST_F(NvmeTest, PolledCommandsCauseNoInterrupts) {
    if (ReadAttribute("/sys/module/nvme/parameters/poll_queues").find_first_not_of('0') ==
        std::string::npos) {
        GTEST_SKIP() << "the NVMe driver has no polling queues (its parameter poll_queues)";
    }
    for (const char *mode : {"sync", "single", "pool", "thread"}) {
        auto io = Open("io_uring_cmd", mode, 16 * KIB, true);
        EXPECT_EQ(io->Caps().polling_obstacle, "");
        // Others may be looking at a device too, such as udev after a test that wrote to it.
        uint64_t interrupts = 1;
        for (int attempt = 0; interrupts != 0 && attempt < 50; attempt++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(attempt));
            interrupts = InterruptsOfTransfers(*io);
        }
        EXPECT_EQ(interrupts, 0u) << mode;
        EXPECT_GT(InterruptsOfTransfers(*Open("io_uring_cmd", mode, 16 * KIB)), 0u) << mode;
    }
}

class NvmeEngineTest : public NvmeTest,
                       public ::testing::WithParamInterface<std::tuple<std::string, const char *>> {
  protected:
    void SetUp() override {
        NvmeTest::SetUp();
        engine_ = std::get<0>(GetParam());
        mode_ = std::get<1>(GetParam());
        if (!IsSkipped() && !OnVfio() && !SendsNvmeCommands() &&
            target_.kind == TargetKind::NVME_CHARACTER_DEVICE) {
            GTEST_SKIP() << engine_ << " is for block devices";
        }
        if (!IsSkipped() && OnVfio() != DrivesController(engine_)) {
            GTEST_SKIP() << engine_ << " does not drive such a target";
        }
        if (!IsSkipped() && IsOptional()) {
            const std::string obstacle = Obstacle(engine_);
            if (!obstacle.empty()) {
                GTEST_SKIP() << obstacle;
            }
        }
    }
    bool SendsNvmeCommands() const {
        return engine_ == "io_uring_cmd" || engine_ == "nvme_ioctl" || engine_ == "vfio" ||
               (IsXnvmeEngine(engine_) && XnvmeSendsNvmeCommands(engine_, target_));
    }
    //! Not in every libxnvme.
    bool IsOptional() const { return engine_ == "xnvme:posix" || XnvmeDrivesController(engine_); }
    std::string engine_, mode_;
};

TEST_P(NvmeEngineTest, WhatIsWrittenIsReadBackAlsoByAnotherEngine) {
    constexpr uint64_t LENGTH = 3 * MIB;
    auto io = Open(engine_, mode_);
    EXPECT_EQ(io->Caps().engine, engine_);
    const auto data = Pattern(LENGTH, 7);
    std::vector<char> back(LENGTH + 4096);
    io->Write(8 * MIB, data.data(), LENGTH);
    io->Flush();
    EXPECT_EQ(stats_->Snapshot(IoOperation::FLUSH).commands, io->Caps().volatile_write_cache ? 1u : 0u);
    io->Read(8 * MIB, back.data(), LENGTH);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), back.begin()));

    std::fill(back.begin(), back.end(), 0);
    if (OnVfio()) {
        io.reset(); // the next has a controller that was started anew; test/nvme/guest.sh asks the kernel's driver
    } else {
        target_ = block_;
    }
    Open(OnVfio() ? "vfio" : "posix", "thread")->Read(8 * MIB, back.data(), LENGTH);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), back.begin())) << "the block device must show the same";
}

TEST_P(NvmeEngineTest, AWriteWithFuaArrivesAndIsCounted) {
    auto io = Open(engine_, mode_);
    if (IsQemus()) {
        ASSERT_FALSE(io->Caps().fua) << "QEMU ignores the bit, so that a commit must not rely on it";
        GTEST_SKIP() << "flushes instead: QEMU's controller ignores FUA";
    }
    if (!io->Caps().fua) {
        ASSERT_FALSE(SendsNvmeCommands()) << "every other NVMe device takes FUA";
        GTEST_SKIP() << engine_ << " flushes here instead";
    }
    auto data = Pattern(64 * KIB, 19);
    std::vector<char> back(data.size());
    io->Execute({Opcode::WRITE, true, {{24 * MIB, data.data(), data.size()}}});
    io->Read(24 * MIB, back.data(), back.size());
    EXPECT_EQ(back, data);
    EXPECT_EQ(stats_->Snapshot(IoOperation::WRITE).fua_commands > 0, io->Caps().volatile_write_cache);
}

TEST_P(NvmeEngineTest, CommandsRespectTheDevicesLimit) {
    auto io = Open(engine_, mode_, 4 * MIB);
    const uint64_t limit = io->Caps().max_transfer_bytes;
    if (SendsNvmeCommands() && !OnVfio()) {
        EXPECT_LE(limit, InspectTarget(generic_).max_passthrough_bytes);
    }
    void *memory = nullptr;
    ASSERT_EQ(posix_memalign(&memory, 4096, 4 * MIB), 0);
    io->Read(0, memory, 4 * MIB);
    // What is copied goes in pieces of 256 KiB. xNVMe's drivers copy below this.
    const bool copies = engine_ == "vfio";
    const uint64_t length = copies ? std::min(limit, 256 * KIB) : limit;
    EXPECT_EQ(stats_->Snapshot(IoOperation::READ).commands, (4 * MIB + length - 1) / length);
    EXPECT_EQ(stats_->Snapshot(IoOperation::READ).bounce_bytes, copies ? 4 * MIB : 0)
        << "to memory that may go away nothing is transferred on vfio";
    free(memory);
}

TEST_P(NvmeEngineTest, UnalignedMemoryAndSingleLbas) {
    auto io = Open(engine_, mode_);
    const uint32_t lba = io->Caps().lba_size;
    const auto data = Pattern(5 * lba, 11);
    std::vector<char> buffer(6 * lba + 1), back(6 * lba + 1);
    std::copy(data.begin(), data.end(), buffer.begin() + 1);
    io->Write(20 * MIB + lba, buffer.data() + 1, 5 * lba);
    for (uint32_t i = 0; i < 5; i++) {
        io->Read(20 * MIB + lba * (i + 1), back.data() + 1 + i * lba, lba);
    }
    EXPECT_TRUE(std::equal(data.begin(), data.end(), back.begin() + 1));
}

// As they do for staging memory, which is read into again and again, and given back.
TEST_P(NvmeEngineTest, RingsKnowMemoryThatIsUsedOften) {
    constexpr uint64_t LENGTH = 256 * KIB, COMMAND = 16 * KIB;
    auto io = Open(engine_, mode_, COMMAND);
    const auto data = Pattern(LENGTH, 23);
    const RingBuffers::Counts before = RingBuffers::Count();
    {
        StableHugeMemory memory(HugeMemory::HUGE_PAGE_BYTES, HugeMemory::Pages::AS_ADVISED_LATER);
        for (uint64_t commands = 0; commands < 5 * RingBuffers::USES_MIN / 4;
             commands += 2 * LENGTH / COMMAND) {
            std::copy(data.begin(), data.end(), memory.Data());
            io->Write(28 * MIB, memory.Data(), LENGTH);
            std::fill(memory.Data(), memory.Data() + LENGTH, 0);
            io->Read(28 * MIB, memory.Data(), LENGTH);
            EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.Data()));
        }
    }
    const RingBuffers::Counts after = RingBuffers::Count();
    EXPECT_EQ(after.bytes, before.bytes);
    // A command alone goes to a block device without a ring.
    const bool uses_ring =
        engine_ == "io_uring_cmd" || (engine_ == "io_uring" && std::string(mode_) != "sync");
    EXPECT_EQ(after.commands > before.commands, uses_ring) << after.obstacle;
}

TEST_P(NvmeEngineTest, TheLastLbaIsReachable) {
    auto io = Open(engine_, mode_);
    const uint32_t lba = io->Caps().lba_size;
    std::vector<char> back(lba);
    const auto data = Pattern(lba, 13);
    io->Write(io->Caps().capacity_bytes - lba, data.data(), lba);
    io->Read(io->Caps().capacity_bytes - lba, back.data(), lba);
    EXPECT_EQ(back, data);
}

TEST_P(NvmeEngineTest, DeallocateIsTaken) {
    auto io = Open(engine_, mode_);
    const auto data = Pattern(1 * MIB, 17);
    io->Write(16 * MIB, data.data(), data.size());
    EXPECT_TRUE(io->Caps().deallocate);
    EXPECT_TRUE(io->Deallocate({{16 * MIB, 1 * MIB}}));
    std::vector<char> back(data.size());
    io->Read(16 * MIB, back.data(), back.size()); // anything, but not an error
}

TEST_P(NvmeEngineTest, From64ThreadsAtOnce) {
    constexpr uint64_t REGION = 64 * KIB;
    auto io = Open(engine_, mode_, 16 * KIB);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 64; t++) {
        threads.emplace_back([&, t] {
            const auto data = Pattern(REGION, 1000 + t);
            std::vector<char> back(REGION);
            for (int round = 0; round < 2; round++) {
                io->Write(32 * MIB + t * REGION, data.data(), REGION);
                io->Read(32 * MIB + t * REGION, back.data(), REGION);
                wrong += back != data ? 1 : 0;
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
}

// Where the device has no room for a command, some kernels carry out another one in its place (ring_entries.hpp), and some
// use half of its address (ring_workers.hpp).
TEST_P(NvmeEngineTest, RequestsOfMoreCommandsThanTheDeviceHasRoomFor) {
    constexpr uint64_t LENGTH = 1 * MIB;
    auto io = Open(engine_, mode_, 4 * KIB);
    const MemoryWithDecoy memory(8 * LENGTH);
    ASSERT_TRUE(memory.HasDecoy());
    std::atomic<int> wrong{0};
    // Only the kernel's own device has that little room. Few threads in a hundred meet half of an address.
    const uint32_t rounds = IsQemus() ? 1 : 16;
    for (uint32_t round = 0; round < rounds; round++) {
        std::vector<std::thread> threads;
        for (uint32_t t = 0; t < 4; t++) {
            threads.emplace_back([&, round, t] {
                char *const sent = memory.Data() + 2 * t * LENGTH, *const back = sent + LENGTH;
                const auto data = Pattern(LENGTH, 2000 + 4 * round + t);
                std::copy(data.begin(), data.end(), sent);
                io->Write(40 * MIB + t * LENGTH, sent, LENGTH);
                std::fill(back, back + LENGTH, 0);
                io->Read(40 * MIB + t * LENGTH, back, LENGTH);
                wrong += std::equal(data.begin(), data.end(), back) ? 0 : 1;
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(memory.DecoyIsUntouched());
}

//! On a device whose read and write commands fail at these
//! byte offsets: RAWDUCK_TEST_NVME_BAD_READ and _WRITE.
class NvmeErrorTest : public NvmeTest {
  protected:
    void SetUp() override {
        NvmeTest::SetUp();
        const char *bad_read = getenv("RAWDUCK_TEST_NVME_BAD_READ");
        const char *bad_write = getenv("RAWDUCK_TEST_NVME_BAD_WRITE");
        if (!bad_read || !bad_write) {
            GTEST_SKIP() << "RAWDUCK_TEST_NVME_BAD_READ and _WRITE name no places that fail";
        }
        bad_read_ = strtoull(bad_read, nullptr, 10);
        bad_write_ = strtoull(bad_write, nullptr, 10);
        const bool generic = OnVfio() || target_.kind == TargetKind::NVME_CHARACTER_DEVICE;
        engines_ = OnVfio()  ? std::vector<std::string>{"vfio"}
                   : generic ? std::vector<std::string>{"io_uring_cmd", "nvme_ioctl"}
                             : std::vector<std::string>{"io_uring", "posix"};
        if (OnVfio() && Obstacle("xnvme:spdk").empty()) {
            engines_.emplace_back("xnvme:spdk");
        }
        if (!OnVfio() && XnvmeObstacle().empty()) {
            const auto more =
                generic ? std::vector<std::string>{"xnvme:io_uring_cmd", "xnvme:nvme", "xnvme:thrpool"}
                        : std::vector<std::string>{"xnvme:io_uring", "xnvme:libaio", "xnvme:thrpool"};
            engines_.insert(engines_.end(), more.begin(), more.end());
        }
        read_text_ = generic ? "media error" : "errno";
        write_text_ = generic ? "write fault" : "errno";
    }
    //! The message must name target, LBAs and cause, and the same queue must serve the next request.
    void Expect(bool write, const std::string &text) {
        const uint64_t bad = write ? bad_write_ : bad_read_;
        for (const auto &engine : engines_) {
            auto io = Open(engine, "thread");
            std::vector<char> data(64 * KIB);
            const Error error = CatchError([&] {
                write ? io->Write(bad, data.data(), data.size()) : io->Read(bad, data.data(), data.size());
            });
            EXPECT_EQ(error.Code(), ErrorCode::IO);
            const std::string message = error.what();
            const std::string first_lba = "LBA " + std::to_string(bad / io->Caps().lba_size) + " to";
            EXPECT_NE(message.find(target_.name), std::string::npos) << message;
            EXPECT_NE(message.find(first_lba), std::string::npos) << message;
            EXPECT_NE(message.find(text), std::string::npos) << message;
            io->Write(bad + 4 * MIB, data.data(), data.size());
            io->Read(bad + 4 * MIB, data.data(), data.size());
        }
    }
    uint64_t bad_read_ = 0, bad_write_ = 0;
    std::vector<std::string> engines_;
    const char *read_text_ = "", *write_text_ = "";
};

TEST_F(NvmeErrorTest, AMediaErrorOnReadIsNamed) {
    Expect(false, read_text_);
}

TEST_F(NvmeErrorTest, AWriteFaultIsNamed) {
    Expect(true, write_text_);
}

TEST(NvmeXnvmeTest, EnginesOfXnvmeAreTested) {
    if (!XnvmeObstacle().empty()) {
        GTEST_SKIP() << "no engine of xNVMe is tested: " << XnvmeObstacle();
    }
    EXPECT_GT(Engines().size(), 4u);
}

INSTANTIATE_TEST_SUITE_P(All, NvmeEngineTest,
                         ::testing::Combine(::testing::ValuesIn(Engines()),
                                            ::testing::Values("sync", "single", "pool", "thread")),
                         [](const auto &info) {
                             std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
                             std::replace(name.begin(), name.end(), ':', '_');
                             return name;
                         });

} // namespace
} // namespace rawduck
