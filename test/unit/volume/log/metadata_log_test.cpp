//! What the log promises beyond ordering: freed space rests, failures stay contained, damage is told from a
//! torn tail, commits are shared.

#include "io/device/simulated/simulated_device.hpp"
#include "support/journal_store.hpp"
#include "volume/journal/read_journal.hpp"
#include "volume/log/metadata_log.hpp"

#include <chrono>
#include <thread>

namespace rawduck {

namespace {

constexpr uint32_t LOG_LBA = 512;
constexpr uint64_t CAPACITY = 16 * MIB;

const Target TARGET = ResolveTarget("simulated:faulty");

//! Counts flushes, and lets them take their time.
class FlushCounter final : public Device {
  public:
    struct Flushes {
        std::atomic<bool> slow{false};
        std::atomic<int> count{0};
    };
    FlushCounter(const std::shared_ptr<SimulatedMedium> &medium, std::shared_ptr<Flushes> flushes)
        : inner_(OpenSimulatedDevice(medium, TARGET, DeviceOptions())), flushes_(std::move(flushes)) {}
    const Capabilities &Caps() const override { return inner_->Caps(); }
    std::unique_ptr<Queue> CreateQueue(uint32_t depth, QueueUse use) override {
        return inner_->CreateQueue(depth, use);
    }
    void Flush() override {
        flushes_->count++;
        if (flushes_->slow) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        inner_->Flush();
    }
    bool Deallocate(uint64_t, uint64_t) override { return false; }

  private:
    std::unique_ptr<Device> inner_;
    std::shared_ptr<Flushes> flushes_;
};

std::shared_ptr<SimulatedMedium> NewMedium() {
    SimulatedOptions options;
    options.capacity_bytes = CAPACITY;
    options.lba_size = options.atomic_write_bytes = LOG_LBA;
    options.fua = SimulatedFua::NONE; // so that commits are flushed
    return std::make_shared<SimulatedMedium>(options);
}

class MetadataLogTest : public ::testing::Test {
  protected:
    MetadataLogTest() { Volume::FormatDevice(*OpenIo(), FormatOptions(), LOG_LBA); }
    std::shared_ptr<Volume> Mount() {
        return Volume::MountDevice(TARGET, std::make_unique<FlushCounter>(medium, flushes), MountOptions(),
                                   std::make_shared<IoStats>());
    }
    std::unique_ptr<BlockIo> OpenIo() {
        return std::make_unique<BlockIo>(OpenSimulatedDevice(medium, TARGET, DeviceOptions()),
                                         BlockIoOptions(), TARGET.name, std::make_shared<IoStats>());
    }
    //! The next command of this kind fails, and only that one.
    void FailNext(SimulatedFault fault) { medium->Inject(fault, medium->Events()); }

    std::shared_ptr<SimulatedMedium> medium = NewMedium();
    std::shared_ptr<FlushCounter::Flushes> flushes = std::make_shared<FlushCounter::Flushes>();
};

} // namespace

TEST_F(MetadataLogTest, FreedSpaceRestsUntilTheRecordIsDurable) {
    const std::unique_ptr<BlockIo> device = OpenIo();
    BlockIo &io = *device;
    LoadedMetadata loaded = LoadMetadata(io, MIB);
    SpaceZones zones(*loaded.space);
    std::vector<Extent> freed;
    MetadataLog log(io, loaded.image, *loaded.trees, zones, [&](const std::vector<Extent> &extents) {
        freed.insert(freed.end(), extents.begin(), extents.end());
    });
    log.Begin();
    Item create;
    create.type = ItemType::CREATE;
    create.file_id = 1;
    create.kind = static_cast<uint8_t>(FileKind::OTHER);
    create.name = "f";
    const uint64_t ticket = log.Queue({create}, {Extent{0, 700, 3}});
    EXPECT_TRUE(freed.empty());
    const uint64_t events = medium->Events();
    log.Commit(ticket);
    EXPECT_GT(medium->Events(), events);
    ASSERT_EQ(freed.size(), 1u);
    EXPECT_EQ(freed[0].start, 700u);
}

TEST_F(MetadataLogTest, AFailedFlushPoisonsTheVolumeForGoodAndReadsGoOn) {
    auto volume = Mount();
    auto file = volume->Open("f", WriteMode());
    file->Append("committed", 9);
    file->Sync();
    FailNext(SimulatedFault::FLUSH_ERROR);
    file->Append("never", 5);
    EXPECT_EQ(FailureOf([&] { file->Sync(); }), ErrorCode::POISONED);
    EXPECT_EQ(FailureOf([&] { file->Sync(); }), ErrorCode::POISONED) << "a failed flush is never retried";
    EXPECT_EQ(FailureOf([&] { file->Append("x", 1); }), ErrorCode::POISONED);
    EXPECT_EQ(FailureOf([&] { volume->Remove("f"); }), ErrorCode::POISONED);
    EXPECT_EQ(FailureOf([&] { volume->Open("g", WriteMode()); }), ErrorCode::POISONED);
    EXPECT_NE(volume->Info().poisoned.find("flush failed"), std::string::npos);
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
    AwaitCheckpoint(*volume);
    FailNext(SimulatedFault::WRITE_ERROR);
    EXPECT_EQ(FailureOf([&] { file->Write(block.data(), block.size(), block.size()); }), ErrorCode::IO);
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
    const std::string bytes(2 * LOG_LBA, 'n');
    file->Append(bytes.data(), bytes.size());
    AwaitCheckpoint(*volume);
    FailNext(SimulatedFault::WRITE_ERROR);
    EXPECT_EQ(FailureOf([&] { file->Sync(); }), ErrorCode::POISONED);
    EXPECT_EQ(FailureOf([&] { file->Sync(); }), ErrorCode::POISONED);
    file.reset();
    volume.reset();
    const std::string found = ReadAll(*Mount(), "f.wal");
    EXPECT_TRUE(found == "committed" || found == "committed" + bytes) << "wholly there or wholly not";
}

TEST_F(MetadataLogTest, AFullVolumeRefusesNewFilesAndKeepsRoomForTheOthers) {
    auto volume = Mount();
    auto file = volume->Open("f.wal", WriteMode());
    file->Append("committed", 9);
    file->Sync();
    const std::string long_name(200, 'n');
    const ErrorCode refusal = FailureOf([&] {
        for (int i = 0; i < 100000; i++) {
            volume->Open(long_name + std::to_string(i), WriteMode());
        }
    });
    EXPECT_EQ(refusal, ErrorCode::NO_SPACE);
    const std::string bytes(500, 'b'); // a long tail, which the record has to hold
    for (int i = 0; i < 20; i++) {
        file->Append(bytes.data(), bytes.size());
        file->Sync();
    }
    EXPECT_EQ(volume->Info().poisoned, "");
    volume->Remove(long_name + "0");
    volume->Open("another", WriteMode());
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
    const std::unique_ptr<BlockIo> device = OpenIo();
    BlockIo &io = *device;
    const JournalImage whole = ReadJournal(io);
    const uint64_t log = LogStart(whole.superblock, whole.log.back().area);
    ASSERT_EQ(whole.log.back().records, 5u);
    const std::string garbage(LOG_LBA, 'g');
    io.Write(log + 4 * LOG_LBA, garbage.data(), LOG_LBA);
    const JournalImage torn = ReadJournal(io);
    EXPECT_EQ(torn.log.back().records, 4u);
    EXPECT_EQ(torn.damage, "");
    io.Write(log + 1 * LOG_LBA, garbage.data(), LOG_LBA);
    const JournalImage damaged = ReadJournal(io);
    EXPECT_EQ(damaged.log.back().records, 1u);
    EXPECT_NE(damaged.damage.find("record 2"), std::string::npos) << damaged.damage;
    auto volume = Mount();
    EXPECT_EQ(ReadAll(*volume, "f").size(), 5u) << "what verifies can be read";
    EXPECT_EQ(FailureOf([&] { volume->Open("f", WriteMode()); }), ErrorCode::POISONED);
}

TEST_F(MetadataLogTest, CommitsThatArriveTogetherShareFlushes) {
    auto volume = Mount();
    volume->Open("warm-up", WriteMode())->Append("x", 1);
    flushes->slow = true;
    flushes->count = 0;
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
    EXPECT_LT(flushes->count, THREADS * COMMITS / 2);
    for (int t = 0; t < THREADS; t++) {
        EXPECT_EQ(ReadAll(*volume, "log" + std::to_string(t)).size(), 6u * COMMITS);
    }
}

// One of those who wait writes for all of them; when it cannot, none of them may wait for ever.
TEST_F(MetadataLogTest, WhoeverWaitsWhenTheLogIsPoisonedIsTold) {
    auto volume = Mount();
    volume->Open("warm-up", WriteMode())->Append("x", 1);
    flushes->slow = true;
    constexpr int THREADS = 8;
    std::atomic<int> told{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < THREADS; t++) {
        threads.emplace_back([&, t] {
            try { // whoever begins late is told when it opens its file
                auto file = volume->Open("log" + std::to_string(t), WriteMode());
                for (;;) {
                    file->Append("commit", 6);
                    file->Sync();
                }
            } catch (const Error &error) {
                told += error.Code() == ErrorCode::POISONED ? 1 : 0;
            }
        });
    }
    while (flushes->count < 20) {
        std::this_thread::yield();
    }
    FailNext(SimulatedFault::FLUSH_ERROR);
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(told, THREADS);
}

} // namespace rawduck
