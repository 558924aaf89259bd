//! What is gone of files that a damaged volume is mounted with, where they share contents.

#include "volume/damage/overwritten.hpp"

#include <gtest/gtest.h>

namespace rawduck {

namespace {

//! Two files with the same 10 units from 100 on, and 5 of their own.
VolumeFiles Sharing() {
    VolumeFiles files;
    for (const uint64_t id : {1, 2}) {
        CatalogEntry entry;
        entry.name = std::to_string(id);
        entry.extents = {{0, 100, 10}, {10, 1000 * id, 5}};
        entry.size = 15 * ALLOCATION_UNIT_BYTES;
        files.entries[id] = entry;
    }
    return files;
}

std::string TextOf(const std::vector<Extent> &extents) {
    std::string text;
    for (const Extent &extent : extents) {
        text += std::to_string(extent.start) + "+" + std::to_string(extent.units) + " ";
    }
    return text;
}

} // namespace

TEST(OverwrittenTest, WhatAnotherFileKeepsIsThere) {
    const Item remove_1(ItemType::REMOVE, 1), remove_2(ItemType::REMOVE, 2);
    EXPECT_EQ(TextOf(FindOverwritten(Sharing(), {remove_1})), "1000+5 ");
    EXPECT_EQ(TextOf(FindOverwritten(Sharing(), {remove_1, remove_2})), "100+10 1000+5 100+10 2000+5 ");
    Item truncate(ItemType::TRUNCATE, 1);
    truncate.size = 12 * ALLOCATION_UNIT_BYTES;
    EXPECT_EQ(TextOf(FindOverwritten(Sharing(), {truncate})), "1002+3 ");
    Item move(ItemType::MOVE, 2); // it may have been changed by what cannot be read
    move.replaced_id = 1;
    EXPECT_EQ(TextOf(FindOverwritten(Sharing(), {move})), "100+10 1000+5 ");
}

} // namespace rawduck
