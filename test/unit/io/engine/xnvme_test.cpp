//! The xNVMe engine where it is not built, and what it
//! refuses; what it does is among the tests of all engines.
#include "io/device/device.hpp"
#include "io/engine/xnvme/xnvme_library.hpp"
#include "support/test_support.hpp"
#include "support/xnvme_support.hpp"

#include <algorithm>

namespace rawduck {
namespace {

Error OpenFails(const std::string &engine) {
    TemporaryFile file(1 * MIB);
    DeviceOptions options;
    options.engine = engine;
    return CatchError([&] { OpenDevice(ResolveTarget(file.Path()), options); });
}

void ExpectText(const std::string &text, const std::string &part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Xnvme, AnAbsentModuleSaysWhatWasLookedForAndHowToGetIt) {
    std::string obstacle;
    EXPECT_EQ(LoadXnvmeModule("/nowhere/librawduck_xnvme.so", obstacle), nullptr);
    ExpectText(obstacle, "/nowhere/librawduck_xnvme.so, which is not there");
    ExpectText(obstacle, "pkg-config finds xnvme");
}

TEST(Xnvme, AnAbsentEngineSaysSoWhenATargetIsOpened) {
    if (XnvmeObstacle().empty()) {
        GTEST_SKIP() << "the engine is built here";
    }
    const Error error = OpenFails("xnvme:io_uring");
    EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
    ExpectText(error.what(), "engine 'xnvme:io_uring' is not available: it needs ");
}

TEST(Xnvme, TheTestsOfAllEnginesRunWithIt) {
    if (!XnvmeObstacle().empty()) {
        GTEST_SKIP() << "no engine of xNVMe is tested: " << XnvmeObstacle();
    }
    const auto engines = XnvmeEnginesOnFiles();
    for (const char *engine : {"xnvme:io_uring", "xnvme:thrpool", "xnvme:emu", "xnvme:psync"}) {
        EXPECT_EQ(std::count(engines.begin(), engines.end(), engine), 1) << engine;
    }
}

TEST(Xnvme, AModuleOfAnotherVersionIsRefused) {
    std::string obstacle;
    EXPECT_EQ(LoadXnvmeModule(RAWDUCK_OTHER_XNVME_MODULE, obstacle), nullptr);
    ExpectText(obstacle, "build both together");
}

TEST(Xnvme, WhatIsNoModuleIsRefused) {
    TemporaryFile file(4096);
    std::string obstacle;
    EXPECT_EQ(LoadXnvmeModule(file.Path(), obstacle), nullptr);
    ExpectText(obstacle, "cannot load " + file.Path());
}

TEST(Xnvme, TheModuleBelongsBesideTheProgram) {
    char self[4096] = {};
    ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
    const std::string folder = std::string(self).substr(0, std::string(self).rfind('/') + 1);
    EXPECT_EQ(XnvmeModulePath(), folder + "librawduck_xnvme.so");
}

TEST(Xnvme, UnknownInterfacesListTheKnown) {
    for (const char *engine : {"xnvme", "xnvme:", "xnvme:floppy"}) {
        const Error error = CatchError([&] { RequireKnownEngine(engine, "nvme_engine"); });
        EXPECT_EQ(error.Code(), ErrorCode::INVALID);
        ExpectText(error.what(), "xnvme:io_uring_cmd, xnvme:io_uring, xnvme:libaio");
    }
}

TEST(Xnvme, InterfacesThatCannotCarryAVolumeAreRefusedWithTheReason) {
    const std::pair<const char *, const char *> refusals[] = {{"xnvme:nil", "without carrying them out"},
                                                              {"xnvme:ramdisk", "forgets everything"},
                                                              {"xnvme:upcie", "not been tested enough"}};
    for (const auto &[engine, reason] : refusals) {
        const Error error = CatchError([e = engine] { RequireKnownEngine(e, "nvme_engine"); });
        EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
        ExpectText(error.what(), reason);
    }
}

TEST(Xnvme, DriversInThisProcessAreRefusedOnWhatTheKernelHas) {
    for (const char *engine : {"xnvme:spdk"}) {
        RequireKnownEngine(engine, "nvme_engine");
        const Error error = OpenFails(engine);
        EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
        ExpectText(error.what(), "rawduck vfio bind");
        ExpectText(error.what(), "as in vfio:0000:01:00.0n1");
    }
}

TEST(Xnvme, DriversInThisProcessSayWhatTheyLack) {
    for (const char *engine : {"xnvme:spdk"}) {
        DeviceOptions options;
        options.engine = engine;
        const Error error = CatchError([&] { OpenDevice(ResolveTarget("vfio:ffff:00:00.0n1"), options); });
        const std::string message = error.what();
        ExpectText(message, "vfio:ffff:00:00.0n1: ");
        if (error.Code() == ErrorCode::NOT_FOUND) { // it is all there, but for the function
            ExpectText(message, "there is no PCI function ffff:00:00.0");
        } else {
            EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED) << message;
            ExpectText(message, std::string("engine '") + engine + "' is not available: ");
        }
    }
}

TEST(Xnvme, AnyOtherEngineOnAFunctionIsTheDriverOfOurOwn) {
    const auto message = [](const std::string &engine) {
        DeviceOptions options;
        options.engine = engine;
        return std::string(
            CatchError([&] { OpenDevice(ResolveTarget("vfio:ffff:00:00.0n1"), options); }).what());
    };
    for (const char *engine : {"auto", "io_uring", "xnvme:io_uring"}) {
        EXPECT_EQ(message(engine), message("vfio"));
    }
}

TEST(Xnvme, NvmeCommandsAreRefusedOnAFile) {
    for (const char *engine : {"xnvme:io_uring_cmd", "xnvme:nvme"}) {
        const Error error = OpenFails(engine);
        EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
        ExpectText(error.what(), "this is a regular file");
    }
}

} // namespace
} // namespace rawduck
