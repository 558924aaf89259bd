//! The rings: identifiers, the phase, and doorbells in memory.
#include "io/engine/vfio/queue/queue_pair.hpp"

#include "io/engine/vfio/model_controller.hpp"
#include "support/test_support.hpp"

#include <cstring>

namespace rawduck {
namespace {

class QueuePairTest : public ::testing::Test {
  protected:
    static constexpr uint16_t ENTRIES = 4;

    void SetUp() override { pair_.Reset(4, {}, {}); }
    //! As the controller would, at the place where it is.
    void Complete(uint16_t slot, uint16_t status = 0) {
        CompletionEntry entry = {};
        entry.command_id = slot;
        entry.status = static_cast<uint16_t>(status << 1 | (phase_ ? 1 : 0));
        char *place = Memory(pair_.CompletionIova()) + at_ * sizeof entry;
        memcpy(place, &entry, sizeof entry);
        at_ = (at_ + 1) % ENTRIES;
        phase_ = at_ == 0 ? !phase_ : phase_;
    }
    char *Memory(uint64_t iova) {
        auto *list = reinterpret_cast<char *>(pair_.PrpList(0));
        return list - (pair_.PrpListIova(0) - iova);
    }
    uint16_t Send(void *command) {
        const uint16_t slot = pair_.TakeSlot({nullptr, command}, 5);
        pair_.Push(SubmissionEntry(), slot);
        return slot;
    }

    ModelState state_;
    ModelController function_{state_};
    DmaSpace space_{function_};
    QueuePair pair_{function_, space_, 1, ENTRIES, 64, "x"};
    size_t at_ = 0;
    bool phase_ = true;
};

TEST_F(QueuePairTest, CompletionsAreToldFromOldOnesInEveryRound) {
    for (int round = 0; round < 50; round++) {
        int first = 0, second = 0;
        const uint16_t a = Send(&first), b = Send(&second);
        EXPECT_FALSE(pair_.HasCompletion()) << round;
        Complete(b, 0x281);
        Complete(a);
        QueuePair::Completion completion;
        ASSERT_EQ(pair_.Pop(completion), QueuePair::PopResult::COMPLETED);
        EXPECT_EQ(completion.owner.command, &second);
        EXPECT_EQ(completion.status, 0x281);
        ASSERT_EQ(pair_.Pop(completion), QueuePair::PopResult::COMPLETED);
        EXPECT_EQ(completion.owner.command, &first);
        EXPECT_EQ(completion.status, 0);
        ASSERT_EQ(pair_.Pop(completion), QueuePair::PopResult::NOTHING) << round;
        EXPECT_EQ(pair_.InFlight(), 0u);
    }
}

TEST_F(QueuePairTest, OneEntryIsNeverUsedAndTheOldestIsKnown) {
    for (int i = 0; i < ENTRIES - 1; i++) {
        EXPECT_TRUE(pair_.HasRoom());
        Send(nullptr);
    }
    EXPECT_FALSE(pair_.HasRoom());
    EXPECT_EQ(pair_.OldestNs(), 5u);
    std::vector<CommandOwner> owners;
    pair_.TakeBack(owners);
    EXPECT_EQ(owners.size(), ENTRIES - 1u);
    EXPECT_EQ(pair_.OldestNs(), UINT64_MAX);
    pair_.Reset(4, {}, {});
}

TEST_F(QueuePairTest, WhatWasNotGivenCannotBeCompleted) {
    const uint16_t slot = Send(nullptr);
    Complete(static_cast<uint16_t>(slot + 1));
    Complete(999);
    Complete(slot);
    QueuePair::Completion completion;
    EXPECT_EQ(pair_.Pop(completion), QueuePair::PopResult::VIOLATION);
    EXPECT_EQ(pair_.Pop(completion), QueuePair::PopResult::VIOLATION);
    EXPECT_EQ(pair_.Pop(completion), QueuePair::PopResult::COMPLETED);
}

//! The controller at `event` has seen the entries up to there, and asks for the next.
TEST(ShadowDoorbells, RingExactlyWhenTheEventIsPassed) {
    for (const uint32_t base : {0u, 100u, 65530u}) {
        for (uint32_t event = 0; event < 12; event++) {
            for (uint32_t before = 0; before < 12; before++) {
                for (uint32_t now = before; now < 12; now++) {
                    const bool passed = before <= event && event < now;
                    EXPECT_EQ(MustRing(static_cast<uint16_t>(base + event),
                                       static_cast<uint16_t>(base + before),
                                       static_cast<uint16_t>(base + now)),
                              passed)
                        << base << " " << event << " " << before << " " << now;
                }
            }
        }
    }
}

TEST_F(QueuePairTest, RegistersAreSparedWhileTheControllerLooks) {
    volatile uint32_t value = 0, event = 0, other[2] = {0, 0};
    pair_.Reset(4, {&value, &event}, {&other[0], &other[1]});
    Send(nullptr);
    pair_.Ring();
    EXPECT_EQ(value, 1u);
    EXPECT_EQ(pair_.DoorbellWrites(), 1u);
    event = 3; // it asks for nothing before that
    Send(nullptr);
    pair_.Ring();
    EXPECT_EQ(value, 2u);
    EXPECT_EQ(pair_.DoorbellWrites(), 1u);
    pair_.Ring();
    EXPECT_EQ(pair_.DoorbellWrites(), 1u) << "nothing is new";
    event = 2;
    Send(nullptr);
    pair_.Ring();
    EXPECT_EQ(pair_.DoorbellWrites(), 2u);
    std::vector<CommandOwner> owners;
    pair_.TakeBack(owners);
}

} // namespace
} // namespace rawduck
