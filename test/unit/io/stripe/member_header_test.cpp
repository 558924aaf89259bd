#include "io/stripe/member_header.hpp"

#include "support/fake_device.hpp"

#include <cstring>

namespace rawduck {
namespace {

Stripe Example() {
    Stripe stripe;
    stripe.uuid = MakeUuid();
    stripe.chunk_bytes = 64 * KIB;
    stripe.data_start = MIB;
    stripe.members.resize(3);
    for (size_t i = 0; i < 3; i++) {
        stripe.members[i].uuid = MakeUuid();
        stripe.members[i].name = {"/dev/example" + std::to_string(i), "S" + std::to_string(i), i};
    }
    return stripe;
}

class MemberHeaderTest : public ::testing::Test {
  protected:
    void WriteBoth(uint64_t generation) {
        for (const HeaderCopy copy : {HeaderCopy::LAST, HeaderCopy::FIRST}) {
            WriteHeader(device_, copy, MakeHeader(stripe_, 1, 512, {generation, {}, {}}));
        }
    }
    char *First() { return state_.bytes.data(); }
    char *Last() { return state_.bytes.data() + state_.bytes.size() - 4096; }

    const Stripe stripe_ = Example();
    FakeState state_{2 * MIB};
    FakeDevice device_{state_};
};

} // namespace

TEST_F(MemberHeaderTest, SaysWhatItWasTold) {
    EXPECT_EQ(ReadHeaders(device_).Newest(), nullptr);
    WriteBoth(7);
    const HeaderCopies copies = ReadHeaders(device_);
    ASSERT_TRUE(copies.first && copies.last);
    EXPECT_EQ(copies.Problem(), "");
    EXPECT_EQ(copies.Generation(), 7u);
    EXPECT_EQ(copies.Newest()->stripe, stripe_.uuid);
    EXPECT_EQ(copies.Newest()->index, 1u);
    EXPECT_EQ(copies.Newest()->count, 3u);
    EXPECT_EQ(copies.Newest()->chunk_bytes, 64 * KIB);
    for (size_t i = 0; i < 3; i++) {
        EXPECT_TRUE(RecordedName(*copies.Newest(), i) == stripe_.members[i].name);
    }
}

TEST_F(MemberHeaderTest, OneCopyIsEnough) {
    WriteBoth(7);
    for (char *damaged : {First(), Last()}) {
        const std::vector<char> before = state_.bytes;
        damaged[4000] ^= 1;
        const HeaderCopies copies = ReadHeaders(device_);
        ASSERT_NE(copies.Newest(), nullptr);
        EXPECT_EQ(copies.Generation(), 7u);
        EXPECT_NE(copies.Problem(), "");
        state_.bytes = before;
    }
    First()[0] ^= 1;
    Last()[0] ^= 1;
    EXPECT_EQ(ReadHeaders(device_).Newest(), nullptr);
}

TEST_F(MemberHeaderTest, TheNewerCopyCounts) {
    WriteBoth(7);
    WriteHeader(device_, HeaderCopy::LAST, MakeHeader(stripe_, 1, 512, {8, MakeUuid(), {}}));
    EXPECT_EQ(ReadHeaders(device_).Generation(), 8u);
    EXPECT_NE(ReadHeaders(device_).Problem(), "");
}

TEST_F(MemberHeaderTest, TheEndOfAnotherStripeIsNotMixedIn) {
    Stripe other = stripe_;
    other.uuid = MakeUuid();
    WriteBoth(7);
    WriteHeader(device_, HeaderCopy::LAST, MakeHeader(other, 1, 512, {99, {}, {}}));
    EXPECT_EQ(ReadHeaders(device_).Generation(), 7u);
}

TEST_F(MemberHeaderTest, AVolumeOfItsOwnIsNoMember) {
    WriteBoth(7);
    memcpy(First(), "RAWDUCK", 8);
    EXPECT_EQ(ReadHeaders(device_).Newest(), nullptr);
}

TEST_F(MemberHeaderTest, ALongPathIsLeftOut) {
    Stripe stripe = stripe_;
    stripe.members[0].name.path = "/" + std::string(300, 'x');
    EXPECT_EQ(RecordedName(MakeHeader(stripe, 0, 512, {1, {}, {}}), 0).path, "");
}

} // namespace rawduck
