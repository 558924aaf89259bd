#include "target/system/sysfs.hpp"

#include "common/error.hpp"
#include "support/test_support.hpp"
#include "target/occupants/kernel_use.hpp"
#include "target/open_target.hpp"
#include "target/target.hpp"

#include <functional>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! With no descriptor left.
Error ErrorWithoutDescriptors(const std::function<void()> &ask) {
    rlimit before{};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{3, before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    Error error(ErrorCode::IO, "");
    try {
        ask();
    } catch (const Error &thrown) {
        error = thrown;
    }
    setrlimit(RLIMIT_NOFILE, &before);
    return error;
}

} // namespace

TEST(Sysfs, WhatIsNotThereIsEmpty) {
    EXPECT_EQ(ReadAttribute("/sys/block/there-is-none/dev"), "");
    EXPECT_TRUE(ListDirectory("/sys/block/there-is-none").empty());
    EXPECT_FALSE(ReadAttribute("/proc/self/stat").empty());
}

TEST(Sysfs, WithoutADescriptorNothingPassesForEmpty) {
    const std::function<void()> questions[] = {
        [] { ReadAttribute("/proc/self/stat"); },
        [] { ReadAttribute("/sys/block/there-is-none/dev"); },
        [] { ListDirectory("/sys/block"); },
        [] {
            Target target;
            target.kind = TargetKind::REGULAR_FILE;
            struct stat status = {};
            FindKernelUses(target, status, ClaimCheck::ASK);
        },
    };
    for (const auto &question : questions) {
        const Error error = ErrorWithoutDescriptors(question);
        EXPECT_EQ(error.Code(), ErrorCode::DESCRIPTORS) << error.what();
        EXPECT_NE(std::string(error.what()).find("ulimit -n"), std::string::npos) << error.what();
    }
}

} // namespace rawduck
