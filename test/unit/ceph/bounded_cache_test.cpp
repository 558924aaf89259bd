#include "ceph/pushdown/feedback/bounded_cache.hpp"

#include <gtest/gtest.h>

namespace rawduck_ceph {

TEST(BoundedCacheTest, FindReturnsTheLastStoredValue) {
    BoundedCache<int> cache(10);
    EXPECT_FALSE(cache.Find("a").has_value());
    cache.Store("a", 1);
    cache.Store("a", 2);
    EXPECT_EQ(cache.Find("a"), 2);
    EXPECT_FALSE(cache.Find("b").has_value());
}

TEST(BoundedCacheTest, AFullCacheIsCleared) {
    BoundedCache<int> cache(2);
    cache.Store("a", 1);
    cache.Store("b", 2);
    cache.Store("c", 3);
    EXPECT_FALSE(cache.Find("a").has_value());
    EXPECT_EQ(cache.Find("c"), 3);
}

} // namespace rawduck_ceph
