#include "volume/mount/queue_options.hpp"

#include "support/test_support.hpp"

#include <gtest/gtest.h>

namespace rawduck {
namespace {

MountOptions Parsed(const std::string &text) {
    MountOptions options;
    ParseQueueOptions(text, options);
    return options;
}

TEST(QueueOptions, WhatIsNotNamedKeepsItsDefault) {
    const std::string defaults = QueueOptionsText(MountOptions());
    EXPECT_EQ(defaults, "mode=thread,depth=32,max_transfer=0,polling=off");
    for (const char *nothing : {"", "  ", "default", defaults.c_str()}) {
        EXPECT_EQ(QueueOptionsText(Parsed(nothing)), defaults) << nothing;
    }
    EXPECT_EQ(QueueOptionsText(Parsed("depth=64")), "mode=thread,depth=64,max_transfer=0,polling=off");
}

TEST(QueueOptions, AllOfThemInAnyOrderAndWithSpaces) {
    const MountOptions options = Parsed(" polling = on, max_transfer=256 KiB ,depth=4096,mode=pool");
    EXPECT_EQ(options.io.queue_mode, QueueMode::POOL);
    EXPECT_EQ(options.io.queue_depth, 4096u);
    EXPECT_EQ(options.max_transfer_bytes, 256 * KIB);
    EXPECT_TRUE(options.polling);
    const std::string text = QueueOptionsText(options);
    EXPECT_EQ(text, "mode=pool,depth=4096,max_transfer=256 KiB,polling=on");
    EXPECT_EQ(QueueOptionsText(Parsed(text)), text) << "what is shown can be set";
}

TEST(QueueOptions, BoundsBelongToThem) {
    EXPECT_EQ(Parsed("depth=1").io.queue_depth, 1u);
    EXPECT_EQ(Parsed("max_transfer=4096").max_transfer_bytes, 4096u);
    EXPECT_EQ(Parsed("max_transfer=64 MiB").max_transfer_bytes, MAX_COMMAND_BYTES);
    EXPECT_EQ(Parsed("max_transfer=0").max_transfer_bytes, 0u);
}

struct Refusal {
    const char *text, *names, *allows;
};

class QueueOptionsRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(QueueOptionsRefusal, NamesWhatIsWrongAndWhatIsAllowed) {
    const Error error = CatchError([] { Parsed(GetParam().text); });
    EXPECT_EQ(error.Code(), ErrorCode::INVALID);
    const std::string message = error.what();
    EXPECT_EQ(message.find("nvme_queues: \""), 0u) << message;
    EXPECT_NE(message.find(GetParam().names), std::string::npos) << message;
    EXPECT_NE(message.find(GetParam().allows), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    All, QueueOptionsRefusal,
    testing::Values(Refusal{"dpeth=3", "\"dpeth=3\"", "known keys: mode, depth, max_transfer, polling"},
                    Refusal{"Mode=pool", "\"Mode=pool\"", "known keys"},
                    Refusal{"pool", "\"pool\" is not a pair", "mode=thread,depth=32"},
                    Refusal{"mode=pool,", "\"\" is not a pair", "mode=thread,depth=32"},
                    Refusal{"default,depth=1", "\"default\" is not a pair", "mode=thread,depth=32"},
                    Refusal{"depth=1,mode=pool,depth=1", "\"depth\" is named twice", "mode=thread,depth=32"},
                    Refusal{"mode=mob", "\"mode=mob\"", "sync, single, pool, thread"},
                    Refusal{"mode=", "\"mode=\"", "sync, single, pool, thread"},
                    Refusal{"depth=", "\"depth=\"", "from 1 to 4096"},
                    Refusal{"depth=0", "\"depth=0\"", "from 1 to 4096"},
                    Refusal{"depth=4097", "\"depth=4097\"", "from 1 to 4096"},
                    Refusal{"depth=-1", "\"depth=-1\"", "from 1 to 4096"},
                    Refusal{"depth=8x", "\"depth=8x\"", "from 1 to 4096"},
                    Refusal{"depth=99999999999999999999", "depth=9999", "from 1 to 4096"},
                    Refusal{"max_transfer=", "\"max_transfer=\"", "not a size"},
                    Refusal{"max_transfer=1 banana", "1 banana", "not a size"},
                    Refusal{"max_transfer=2 KiB", "2 KiB", "multiple of 4 KiB up to 64 MiB"},
                    Refusal{"max_transfer=5000", "5000", "multiple of 4 KiB up to 64 MiB"},
                    Refusal{"max_transfer=65 MiB", "65 MiB", "multiple of 4 KiB up to 64 MiB"},
                    Refusal{"polling=yes", "\"polling=yes\"", "neither on nor off"},
                    Refusal{"polling=", "\"polling=\"", "neither on nor off"}));

} // namespace
} // namespace rawduck
