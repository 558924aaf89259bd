//! DuckDB's three headers, counted in commands: each is replaced by one write
//! of one unit at a place of its own, so that a device with an atomic write
//! unit of 4 KiB never tears one, and no device damages the one that counts.
#include "support/fake_device.hpp"
#include "support/volume_fixture.hpp"

namespace rawduck {
namespace {

TEST(HeaderWrite, EachIsOneCommandOfOneUnitAndNeverInPlace) {
    FakeState state(32 * MIB);
    const auto stats = std::make_shared<IoStats>();
    {
        BlockIo io(std::make_unique<FakeDevice>(state), BlockIoOptions(), "memory:fake", stats);
        Volume::FormatDevice(io, FormatOptions(), state.caps.lba_size);
    }
    Target target;
    target.kind = TargetKind::MEMORY;
    target.name = target.identity = "memory:fake";
    auto volume = Volume::MountDevice(target, std::make_unique<FakeDevice>(state), MountOptions(), stats);
    AwaitFirstCheckpoint(*volume);
    auto file = volume->Open("a.duckdb", WriteMode(FileKind::DATABASE));
    const std::string blocks(1 * MIB, 'b');
    file->Write(blocks.data(), blocks.size(), 0);
    file->Sync();
    for (uint64_t header = 0; header < 3; header++) {
        const auto extents = file->Info().extents;
        const std::string page(ALLOCATION_UNIT_BYTES, static_cast<char>('0' + header));
        state.ForgetCommands();
        file->Write(page.data(), page.size(), header * ALLOCATION_UNIT_BYTES);
        const std::vector<Command> commands = state.Commands();
        ASSERT_EQ(commands.size(), 1u) << "header " << header;
        const Command &command = commands[0];
        EXPECT_EQ(command.opcode, Opcode::WRITE);
        EXPECT_EQ(command.length, ALLOCATION_UNIT_BYTES);
        EXPECT_TRUE(IsAligned(command.device_offset, ALLOCATION_UNIT_BYTES));
        for (const ExtentInfo &extent : extents) {
            EXPECT_TRUE(command.device_offset < extent.device_offset ||
                        command.device_offset >= extent.device_offset + extent.length)
                << "header " << header << " was overwritten where it counts";
        }
        file->Sync();
        std::string back(ALLOCATION_UNIT_BYTES, '\0');
        file->Read(&back[0], back.size(), header * ALLOCATION_UNIT_BYTES);
        EXPECT_EQ(back, page);
    }
}

} // namespace
} // namespace rawduck
