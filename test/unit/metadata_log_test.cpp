//! What the log promises beyond ordering: freed space rests, failures stay contained, damage is told from a
//! torn tail, commits are shared.

#include "common/error.hpp"
#include "power_cut_device.hpp"
#include "volume/metadata_log.hpp"
#include "volume_fixture.hpp"

#include <chrono>
#include <thread>

namespace rawduck {

namespace {

constexpr uint32_t LBA = 512;
constexpr uint64_t CAPACITY = 16 * MIB;

//! A device whose flushes and writes can be made to fail, or to take their time.
class FaultyDevice final : public Device {
  public:
    struct Faults {
        std::atomic<bool> fail_flush{false}, fail_write{false}, slow_flush{false};
        std::atomic<int> flushes{0};
    };
    FaultyDevice(std::shared_ptr<PowerCutTrace> trace, std::shared_ptr<Faults> faults)
        : inner_(trace), faults_(std::move(faults)), trace_(std::move(trace)) {}
    const Capabilities &Caps() const override { return inner_.Caps(); }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse) override {
        auto transfer = [this](const Command &command) -> int64_t {
            if (command.opcode == Opcode::WRITE && faults_->fail_write) {
                return -EIO;
            }
            if (command.opcode == Opcode::READ) {
                trace_->Read(command.device_offset, static_cast<char *>(command.data), command.length);
            } else {
                trace_->Write(command.device_offset, static_cast<const char *>(command.data), command.length);
            }
            return command.length;
        };
        return std::make_unique<SynchronousQueue>(depth, transfer);
    }
    void Flush() override {
        faults_->flushes++;
        if (faults_->slow_flush) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        if (faults_->fail_flush) {
            throw Error(ErrorCode::IO, "flush of the test device failed on purpose");
        }
        inner_.Flush();
    }
    bool Deallocate(uint64_t, uint64_t) override { return false; }

  private:
    PowerCutDevice inner_;
    std::shared_ptr<Faults> faults_;
    std::shared_ptr<PowerCutTrace> trace_;
};

class MetadataLogTest : public ::testing::Test {
  protected:
    MetadataLogTest() {
        BlockIo io(std::make_unique<PowerCutDevice>(trace), BlockIoOptions(), "memory:faulty",
                   std::make_shared<IoStats>());
        Volume::FormatDevice(io, FormatOptions(), LBA);
    }
    std::shared_ptr<Volume> Mount() {
        Target target;
        target.kind = TargetKind::MEMORY;
        target.name = target.identity = "memory:faulty";
        target.path = "faulty";
        return Volume::MountDevice(target, std::make_unique<FaultyDevice>(trace, faults), MountOptions(),
                                   std::make_shared<IoStats>());
    }
    std::shared_ptr<PowerCutTrace> trace = std::make_shared<PowerCutTrace>(std::string(CAPACITY, '\0'), LBA);
    std::shared_ptr<FaultyDevice::Faults> faults = std::make_shared<FaultyDevice::Faults>();
};

ErrorCode FailureOf(const std::function<void()> &action) {
    try {
        action();
    } catch (const Error &error) {
        return error.Code();
    }
    ADD_FAILURE() << "no error";
    return ErrorCode::INVALID;
}

} // namespace

TEST_F(MetadataLogTest, FreedSpaceRestsUntilTheRecordIsDurable) {
    BlockIo io(std::make_unique<PowerCutDevice>(trace), BlockIoOptions(), "memory:faulty",
               std::make_shared<IoStats>());
    VolumeImage image = LoadVolumeImage(io, "memory:faulty");
    std::vector<Extent> freed;
    MetadataLog log(io, image.superblock, std::move(image.catalog), [&](const std::vector<Extent> &extents) {
        freed.insert(freed.end(), extents.begin(), extents.end());
    });
    Item create;
    create.type = ItemType::CREATE;
    create.file_id = 1;
    create.kind = static_cast<uint8_t>(FileKind::OTHER);
    create.name = "f";
    const uint64_t ticket = log.Queue({create}, false, {Extent{0, 700, 3}});
    EXPECT_TRUE(freed.empty());
    const size_t events = trace->Events();
    log.Commit(ticket);
    EXPECT_GT(trace->Events(), events);
    ASSERT_EQ(freed.size(), 1u);
    EXPECT_EQ(freed[0].start, 700u);
}

TEST_F(MetadataLogTest, AFailedFlushPoisonsTheVolumeForGoodAndReadsGoOn) {
    auto volume = Mount();
    auto file = volume->Open("f", WriteMode());
    file->Append("committed", 9);
    file->Sync();
    faults->fail_flush = true;
    file->Append("never", 5);
    EXPECT_EQ(FailureOf([&] { file->Sync(); }), ErrorCode::POISONED);
    faults->fail_flush = false;
    EXPECT_EQ(FailureOf([&] { file->Sync(); }), ErrorCode::POISONED) << "a failed flush is never retried";
    EXPECT_EQ(FailureOf([&] { file->Append("x", 1); }), ErrorCode::POISONED);
    EXPECT_EQ(FailureOf([&] { volume->Remove("f"); }), ErrorCode::POISONED);
    EXPECT_EQ(FailureOf([&] { volume->Open("g", WriteMode()); }), ErrorCode::POISONED);
    EXPECT_NE(volume->Info().poisoned.find("on purpose"), std::string::npos);
    char bytes[9];
    EXPECT_EQ(file->Read(bytes, 9, 0), 9u);
    EXPECT_EQ(std::string(bytes, 9), "committed");
    file.reset();
    volume.reset();
    EXPECT_EQ(ReadAll(*Mount(), "f").substr(0, 9), "committed");
}

TEST_F(MetadataLogTest, AFailedDataWriteFailsTheWriteAndNothingElse) {
    auto volume = Mount();
    auto file = volume->Open("f.duckdb", WriteMode(FileKind::DATABASE));
    const std::string block(64 * KIB, 'b');
    file->Write(block.data(), block.size(), 0);
    file->Sync();
    faults->fail_write = true;
    EXPECT_EQ(FailureOf([&] { file->Write(block.data(), block.size(), block.size()); }), ErrorCode::IO);
    faults->fail_write = false;
    EXPECT_EQ(volume->Info().poisoned, "");
    file->Write(block.data(), block.size(), block.size());
    file->Close();
    EXPECT_EQ(ReadAll(*volume, "f.duckdb"), block + block);
}

TEST_F(MetadataLogTest, ASyncThatFailsHalfWayNeverPassesForDurableLater) {
    auto volume = Mount();
    auto file = volume->Open("f.wal", WriteMode());
    file->Append("committed", 9);
    file->Sync();
    const std::string bytes(2 * LBA, 'n');
    file->Append(bytes.data(), bytes.size());
    faults->fail_write = true;
    EXPECT_EQ(FailureOf([&] { file->Sync(); }), ErrorCode::IO);
    faults->fail_write = false;
    EXPECT_EQ(FailureOf([&] { file->Sync(); }), ErrorCode::POISONED);
    file.reset();
    volume.reset();
    EXPECT_EQ(ReadAll(*Mount(), "f.wal"), "committed");
}

TEST_F(MetadataLogTest, DamageInsideTheLogIsToldFromATornTail) {
    {
        auto volume = Mount();
        auto file = volume->Open("f", WriteMode());
        for (int i = 0; i < 5; i++) {
            file->Append("12345", 5);
            file->Sync();
        }
    }
    BlockIo io(std::make_unique<PowerCutDevice>(trace), BlockIoOptions(), "memory:faulty",
               std::make_shared<IoStats>());
    const VolumeImage whole = LoadVolumeImage(io, "memory:faulty");
    ASSERT_EQ(whole.log_records, 4u) << "the first commit of a mount is a snapshot";
    const std::string garbage(LBA, 'g');
    io.Write(LogStart(whole.superblock) + 3 * LBA, garbage.data(), LBA);
    const VolumeImage torn = LoadVolumeImage(io, "memory:faulty");
    EXPECT_EQ(torn.log_records, 3u);
    EXPECT_EQ(torn.damage, "");
    io.Write(LogStart(whole.superblock) + 1 * LBA, garbage.data(), LBA);
    const VolumeImage damaged = LoadVolumeImage(io, "memory:faulty");
    EXPECT_EQ(damaged.log_records, 1u);
    EXPECT_NE(damaged.damage.find("record 2"), std::string::npos) << damaged.damage;
    auto volume = Mount();
    EXPECT_EQ(ReadAll(*volume, "f").size(), 10u) << "what verifies can be read";
    EXPECT_EQ(FailureOf([&] { volume->Open("f", WriteMode()); }), ErrorCode::POISONED);
}

TEST_F(MetadataLogTest, CommitsThatArriveTogetherShareFlushes) {
    auto volume = Mount();
    volume->Open("warm-up", WriteMode())->Append("x", 1);
    faults->slow_flush = true;
    faults->flushes = 0;
    constexpr int THREADS = 8, COMMITS = 10;
    std::vector<std::thread> threads;
    for (int t = 0; t < THREADS; t++) {
        threads.emplace_back([&, t] {
            auto file = volume->Open("log" + std::to_string(t), WriteMode());
            for (int i = 0; i < COMMITS; i++) {
                file->Append("commit", 6);
                file->Sync();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_LT(faults->flushes, THREADS * COMMITS / 2);
    for (int t = 0; t < THREADS; t++) {
        EXPECT_EQ(ReadAll(*volume, "log" + std::to_string(t)).size(), 6u * COMMITS);
    }
}

} // namespace rawduck
