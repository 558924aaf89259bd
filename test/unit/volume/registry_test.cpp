#include "io/device/memory_device.hpp"
#include "io/device/simulated/simulated_device.hpp"
#include "support/volume_fixture.hpp"

#include <thread>

namespace rawduck {
namespace {

//! Formats, opens a file and tries to format again, as long as it is open and when it is closed.
void ExpectNotFormattedWhileOpen(const std::string &target) {
    FormatOptions options;
    options.force = true;
    Volume::Format(target, options);
    VolumePin volume = PinVolume(target, MountOptions());
    auto file = volume->Open("x.duckdb", WriteMode());
    file->Append("kept", 4);
    file->Sync();
    std::string text;
    EXPECT_EQ(FailureOf([&] { Volume::Format(target, options); }, &text), ErrorCode::LOCKED);
    EXPECT_NE(text.find("DETACH"), std::string::npos) << text;
    EXPECT_NE(text.find(target), std::string::npos) << text;
    file->Close();
    volume = VolumePin();
    EXPECT_EQ(ReadAll(*PinVolume(target, MountOptions()), "x.duckdb"), "kept");
    Volume::Format(target, options);
    EXPECT_TRUE(PinVolume(target, MountOptions())->Files().empty());
}

} // namespace

TEST(RegistryTest, WhatIsOpenInMemoryIsNotFormatted) {
    ExpectNotFormattedWhileOpen("memory:registry");
    DropMemoryTarget("registry");
}

TEST(RegistryTest, WhatIsOpenOnASimulatedDeviceIsNotFormatted) {
    SimulatedOptions options;
    options.capacity_bytes = 32 * MIB;
    CreateSimulatedTarget("registry", options);
    ExpectNotFormattedWhileOpen("simulated:registry");
}

TEST(RegistryTest, WhoeverWantsToMountWaitsForTheEndOfAReservation) {
    const MemoryVolume memory(4096);
    const Target target = ResolveTarget(memory.name);
    std::atomic<bool> reserved{true};
    auto reservation = std::make_unique<TargetReservation>(target, "tested");
    std::thread mounting([&] {
        const VolumePin volume = PinVolume(memory.name, MountOptions());
        EXPECT_FALSE(reserved) << "it did not wait";
    });
    EXPECT_FALSE(MountedVolume(target.identity));
    reserved = false;
    reservation.reset();
    mounting.join();
}

TEST(RegistryTest, OneOfManyMakesAMemoryTargetThatIsNotThere) {
    for (int round = 0; round < 50; round++) {
        MountOptions options;
        options.memory_target_bytes = 16 * MIB;
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back([&options] { EXPECT_TRUE(bool(PinVolume("memory:many", options))); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        DropMemoryTarget("many");
    }
}

} // namespace rawduck
