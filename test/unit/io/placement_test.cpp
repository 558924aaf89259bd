//! Flexible data placement: what the device tells, which class gets which identifier, and that every write of
//! a volume carries the identifier of its class.
#include "io/device/nvme_device.hpp"
#include "io/device/nvme_fdp.hpp"
#include "support/fake_device.hpp"
#include "support/test_support.hpp"
#include "support/volume_fixture.hpp"

#include <algorithm>
#include <set>

namespace rawduck {
namespace {

PlacementId Id(unsigned number) {
    return static_cast<PlacementId>(number);
}

PlacementMap Share(const std::vector<PlacementId> &identifiers, const std::string &request = "auto") {
    return MapPlacement(ParsePlacement(request), identifiers, "there is none", "/dev/ng0n1");
}

TEST(PlacementMap, WhatDiesFirstIsApartFirst) {
    EXPECT_EQ(Share({}).Text(), "");
    EXPECT_EQ(Share({Id(5)}).Text(), "database=5, metadata=5, wal=5, temporary=5");
    EXPECT_EQ(Share({Id(5), Id(6)}).Text(), "database=5, metadata=5, wal=5, temporary=6");
    EXPECT_EQ(Share({Id(5), Id(6), Id(7)}).Text(), "database=5, metadata=6, wal=6, temporary=7");
    EXPECT_EQ(Share({Id(5), Id(6), Id(7), Id(9)}).Text(), "database=5, metadata=9, wal=6, temporary=7");
    EXPECT_EQ(Share({Id(0), Id(1), Id(2), Id(3), Id(4)}).Text(),
              "database=0, metadata=3, wal=1, temporary=2");
    EXPECT_EQ(Share({Id(5), Id(6)}, "off").Text(), "");
}

TEST(PlacementMap, AnExplicitOneIsTakenAsItIs) {
    const PlacementMap map = Share({Id(0), Id(1), Id(2)}, "temporary=1, wal=2");
    EXPECT_EQ(map[PlacementClass::TEMPORARY], Id(1));
    EXPECT_EQ(map[PlacementClass::WAL], Id(2));
    EXPECT_EQ(map[PlacementClass::DATABASE], PlacementId::NONE);
    EXPECT_EQ(map.Text(), "wal=2, temporary=1");
    for (const std::string &text : {map.Text(), std::string("auto"), std::string("off")}) {
        EXPECT_EQ(ParsePlacement(text).Text(), text) << "what is shown can be set";
    }
}

TEST(PlacementMap, BadOnesAreRefusedWithTheReason) {
    auto refusal = [](const std::string &text) {
        const Error error = CatchError([&] { ParsePlacement(text); });
        EXPECT_EQ(error.Code(), ErrorCode::INVALID);
        return std::string(error.what());
    };
    EXPECT_NE(refusal("").find("is not a pair"), std::string::npos);
    EXPECT_NE(refusal("on").find("\"on\" is not a pair"), std::string::npos);
    EXPECT_NE(refusal("database=0,").find("\"\" is not a pair"), std::string::npos);
    EXPECT_NE(refusal("temp=1").find("no class \"temp\""), std::string::npos);
    EXPECT_NE(refusal("wal=1,wal=2").find("\"wal\" is named twice"), std::string::npos);
    for (const char *number : {"", "-1", "x", "1x", "65535", "65536", "99999999999999999999"}) {
        EXPECT_NE(refusal(std::string("wal=") + number).find("is not a placement identifier"),
                  std::string::npos);
    }
    EXPECT_EQ(ParsePlacement("wal=65534").map[PlacementClass::WAL], Id(65534));
    const Error unknown = CatchError([] { Share({Id(0), Id(1)}, "temporary=7"); });
    EXPECT_EQ(unknown.Code(), ErrorCode::INVALID);
    EXPECT_STREQ(unknown.what(),
                 "/dev/ng0n1: nvme_placement asks for temporary=7, but the namespace has only "
                 "the placement identifiers 0, 1");
    const Error none = CatchError([] { Share({}, "temporary=0"); });
    EXPECT_EQ(none.Code(), ErrorCode::UNSUPPORTED);
    EXPECT_NE(std::string(none.what()).find("there is none"), std::string::npos);
}

TEST(NvmePlacement, AWriteCarriesTheDirectiveAndAReadDoesNot) {
    Command command;
    command.opcode = Opcode::WRITE;
    command.length = 8192;
    command.device_offset = (uint64_t(1) << 32) * 4096 + 4096;
    EXPECT_EQ(MakeNvmeTransfer(command, 1, 4096).cdw12, 1u) << "no directive";
    EXPECT_EQ(MakeNvmeTransfer(command, 1, 4096).cdw13, 0u);
    command.placement = Id(0xA005);
    nvme_passthru_cmd64 transfer = MakeNvmeTransfer(command, 1, 4096);
    EXPECT_EQ(transfer.cdw12, 0x00200001u) << "directive type 2, two LBAs";
    EXPECT_EQ(transfer.cdw13, 0xA0050000u);
    EXPECT_EQ(transfer.cdw10, 1u);
    EXPECT_EQ(transfer.cdw11, 1u);
    command.placement = Id(0);
    EXPECT_EQ(MakeNvmeTransfer(command, 1, 4096).cdw12, 0x00200001u) << "0 is an identifier like any other";
    command.opcode = Opcode::READ;
    EXPECT_EQ(MakeNvmeTransfer(command, 1, 4096).cdw12, 1u);
}

TEST(NvmePlacement, HandlesAreReadFromTheStatusAndNeverBeyondIt) {
    std::vector<uint8_t> status(16 + 2 * 32);
    status[14] = 3; // one more than there is room for
    uint8_t *second = &status[16 + 32];
    second[0] = 0x01, second[1] = 0x80; // placement identifier
    second[2] = 0x07;                   // reclaim unit handle
    second[9] = 0x02;                   // 512 LBAs left
    uint32_t count = 0;
    const auto handles = ParsePlacementHandles(status.data(), status.size(), 4096, count);
    EXPECT_EQ(count, 3u);
    ASSERT_EQ(handles.size(), 2u);
    EXPECT_EQ(handles[0].placement, Id(0));
    EXPECT_EQ(handles[1].placement, Id(0x8001));
    EXPECT_EQ(handles[1].reclaim_unit_handle, 7);
    EXPECT_EQ(handles[1].remaining_bytes, 2 * MIB);
    EXPECT_TRUE(ParsePlacementHandles(status.data(), 15, 4096, count).empty());
    EXPECT_EQ(count, 0u);
}

TEST(NvmePlacement, StatisticsHave128Bits) {
    std::vector<uint8_t> page(64);
    page[5] = 1;  // host bytes: 2^40
    page[16] = 9; // media bytes
    page[47] = 1; // erased bytes: 2^120
    const FdpStatistics statistics = ParseFdpStatistics(page.data());
    EXPECT_EQ(statistics.host_bytes, uint64_t(1) << 40);
    EXPECT_EQ(statistics.media_bytes, 9u);
    EXPECT_EQ(statistics.erased_bytes, UINT64_MAX);
}

TEST(NvmePlacement, WhatHasNoneSaysSo) {
    const TemporaryFile file(1 * MIB);
    const Error error = CatchError([&] { InspectFdp(ResolveTarget(file.Path())); });
    EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find(file.Path() + ": no flexible data placement"),
              std::string::npos);
}

//! A volume on a device that can place, and everything that reaches the device.
class VolumePlacementTest : public ::testing::Test {
  protected:
    VolumePlacementTest() : state_(32 * MIB) {
        state_.caps.placements = {Id(10), Id(11), Id(12), Id(13)};
        BlockIo io(std::make_unique<FakeDevice>(state_), BlockIoOptions(), "memory:fake", stats_);
        Volume::FormatDevice(io, FormatOptions(), 512);
    }
    std::shared_ptr<Volume> Mount() {
        MountOptions options;
        options.io.placement = request_;
        options.spill_buffer_bytes = 0; // what the device has seen is looked at without waiting for a writer
        Target target;
        target.kind = TargetKind::MEMORY;
        target.name = target.identity = "memory:fake";
        return Volume::MountDevice(target, std::make_unique<FakeDevice>(state_), options, stats_);
    }
    //! Writes, rewrites a header and syncs; says which bytes of the device the file had.
    static std::vector<ExtentInfo> Fill(Volume &volume, const std::string &name, FileKind kind) {
        const std::string data(200 * KIB + 77, 'x');
        auto file = volume.Open(name, WriteMode(kind));
        file->Write(data.data(), data.size(), 0);
        file->Sync();
        std::vector<ExtentInfo> extents = file->Info().extents;
        file->Write(data.data(), 4096, 4096);
        file->Append(data.data(), 700);
        file->Sync();
        const std::vector<ExtentInfo> later = file->Info().extents;
        extents.insert(extents.end(), later.begin(), later.end());
        return extents;
    }
    //! The identifiers of the writes that lie in these extents, or with `inside` false outside all of them.
    std::set<PlacementId> Placements(const std::vector<ExtentInfo> &extents, bool inside) {
        std::set<PlacementId> found;
        for (const Command &command : state_.Commands()) {
            const bool hit = std::any_of(extents.begin(), extents.end(), [&](const ExtentInfo &extent) {
                return command.device_offset >= extent.device_offset &&
                       command.device_offset < extent.device_offset + extent.length;
            });
            if (command.opcode == Opcode::WRITE && hit == inside) {
                found.insert(command.placement);
            }
        }
        return found;
    }

    FakeState state_;
    PlacementRequest request_;
    std::shared_ptr<IoStats> stats_ = std::make_shared<IoStats>();
};

TEST_F(VolumePlacementTest, EveryWriteCarriesTheIdentifierOfItsClass) {
    auto volume = Mount();
    AwaitFirstCheckpoint(*volume);
    EXPECT_EQ(volume->Info().placement, "database=10, metadata=13, wal=11, temporary=12");
    struct {
        const char *name;
        FileKind kind;
        PlacementId id;
    } files[] = {{"a.duckdb", FileKind::DATABASE, Id(10)},
                 {"a.duckdb.wal", FileKind::OTHER, Id(11)},
                 {"duckdb_temp_0", FileKind::TEMP, Id(12)},
                 {"a.parquet", FileKind::OTHER, Id(10)}};
    for (const auto &file : files) {
        state_.ForgetCommands(); // the next file may get what the last one gave back
        const auto extents = Fill(*volume, file.name, file.kind);
        EXPECT_EQ(Placements(extents, true), std::set<PlacementId>{file.id}) << file.name;
        const auto metadata = file.id == Id(12) ? std::set<PlacementId>{} : std::set<PlacementId>{Id(13)};
        EXPECT_EQ(Placements(extents, false), metadata) << file.name;
    }
    EXPECT_GE(stats_->OfClass(IoOperation::WRITE, PlacementClass::TEMPORARY), 200 * KIB);
    EXPECT_GT(stats_->OfClass(IoOperation::WRITE, PlacementClass::METADATA), 0u);
    uint64_t placed = 0, written = stats_->Snapshot(IoOperation::WRITE).bytes;
    for (size_t i = 0; i < PLACEMENT_CLASS_COUNT; i++) {
        placed += stats_->OfClass(IoOperation::WRITE, static_cast<PlacementClass>(i));
    }
    EXPECT_EQ(placed, written);
}

TEST_F(VolumePlacementTest, OffSendsNoIdentifier) {
    request_ = ParsePlacement("off");
    auto volume = Mount();
    EXPECT_EQ(volume->Info().placement.find("off: "), 0u) << volume->Info().placement;
    state_.ForgetCommands();
    const auto extents = Fill(*volume, "duckdb_temp_0", FileKind::TEMP);
    EXPECT_EQ(Placements(extents, true), std::set<PlacementId>{PlacementId::NONE});
}

TEST_F(VolumePlacementTest, WhereThereIsNoneTheVolumeSaysWhy) {
    state_.caps.placements.clear();
    state_.caps.placement_obstacle = "the block layer has none";
    EXPECT_EQ(Mount()->Info().placement, "off: the block layer has none");
    request_ = ParsePlacement("wal=10");
    EXPECT_EQ(CatchError([&] { Mount(); }).Code(), ErrorCode::UNSUPPORTED);
}

} // namespace
} // namespace rawduck
