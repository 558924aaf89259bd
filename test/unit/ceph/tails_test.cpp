#include "ceph/pushdown/feedback/object_tails.hpp"

#include <gtest/gtest.h>

namespace rawduck_ceph {
namespace {

ObjectStatus Version(uint64_t version, uint64_t size = 100) {
    ObjectStatus status;
    status.version = version;
    status.size = size;
    return status;
}

void RecordTail(ObjectTails &tails, const std::string &object, const ObjectStatus &status,
                const std::string &bytes) {
    tails.RecordRead(object, status, bytes.data(), bytes.size(), status.size - bytes.size());
}

TEST(ObjectTailsTest, FindReturnsTheLongestTailOfTheLastVersion) {
    ObjectTails tails;
    ObjectStatus status;
    std::string bytes;
    EXPECT_FALSE(tails.Find("a", status, bytes));
    RecordTail(tails, "a", Version(1), "twenty bytes at end!");
    RecordTail(tails, "a", Version(1), "at end!!");
    RecordTail(tails, "b", Version(9), "of another");
    ASSERT_TRUE(tails.Find("a", status, bytes));
    EXPECT_EQ(bytes, "twenty bytes at end!");
    EXPECT_EQ(status.version, 1u);
    RecordTail(tails, "a", Version(2, 50), "newer one");
    ASSERT_TRUE(tails.Find("a", status, bytes));
    EXPECT_EQ(bytes, "newer one");
    EXPECT_EQ(status.version, 2u);
    EXPECT_EQ(status.size, 50u);
}

TEST(ObjectTailsTest, OtherReadsAreNotKept) {
    ObjectTails tails;
    ObjectStatus status;
    std::string bytes;
    tails.RecordRead("a", Version(1), "0123456789", 10, 89);
    RecordTail(tails, "a", Version(1), "1234567");
    const uint64_t large = ObjectTails::BYTES_MAX + 1;
    RecordTail(tails, "a", Version(1, large), std::string(large, 'x'));
    EXPECT_FALSE(tails.Find("a", status, bytes));
}

TEST(ObjectTailsTest, TheOldestIsEvicted) {
    ObjectTails tails;
    ObjectStatus status;
    std::string bytes;
    for (size_t i = 0; i <= ObjectTails::OBJECTS_MAX; i++) {
        RecordTail(tails, std::to_string(i), Version(1), "the end.");
    }
    EXPECT_FALSE(tails.Find("0", status, bytes));
    EXPECT_TRUE(tails.Find("1", status, bytes));
}

} // namespace
} // namespace rawduck_ceph
