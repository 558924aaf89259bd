//! What a mount, a check and a repair make of a damaged metadata page.

#include "support/damaged_volume.hpp"

#include <algorithm>

namespace rawduck {

namespace {

using Strings = std::vector<std::string>;

class CheckPagesTest : public DamagedVolumeTest {
  protected:
    CheckPagesTest() {
        for (const char *name : {"f", "g"}) {
            Commit(name, 3, name);
        }
        Commit("last", 1, "h"); // so that the others are in the checkpoint
    }
    static uint64_t OffsetOf(const TreeRoot &root) { return root.page.unit * ALLOCATION_UNIT_BYTES; }
    CatalogRoots Roots() { return Load().superblock.roots; }
    bool Complains(const std::string &of) {
        const Strings found = Complaints();
        return std::find(found.begin(), found.end(), of) != found.end();
    }
};

TEST_F(CheckPagesTest, OfTheEntriesOfFiles) {
    ASSERT_EQ(Roots().files.levels, 1u);
    const uint64_t offset = OffsetOf(Roots().files) + LBA;
    const std::string bytes = ReadBytes(offset, LBA);
    for (const bool unreadable : {false, true}) {
        if (unreadable) {
            MakeUnreadable(offset);
        } else {
            WriteBytes(offset, std::string(LBA, 'x'));
        }
        EXPECT_EQ(Complaints(), (Strings{"error metadata", "error file f", "error file g"}));
        const auto volume = Mount();
        EXPECT_EQ(volume->Files().size(), 3u);
        EXPECT_EQ(ReadAll(*volume, "h"), "last") << "the log tells of it";
        std::string text;
        EXPECT_EQ(FailureOf([&] { volume->Open("f", OpenMode()); }, &text), ErrorCode::CORRUPT);
        EXPECT_NE(text.find("\"f\" cannot be read"), std::string::npos) << text;
        ExpectUntouched();
        WriteBytes(offset, bytes);
        EXPECT_TRUE(Complaints().empty());
    }
    EXPECT_EQ(Content("f"), "fff");
    EXPECT_TRUE(TakesWrites());
}

TEST_F(CheckPagesTest, OfTheLastBytesOfFiles) {
    const uint64_t offset = OffsetOf(Roots().tails);
    const std::string bytes = ReadBytes(offset, LBA);
    WriteBytes(offset, std::string(LBA, 'x'));
    EXPECT_TRUE(Complains("error file f"));
    EXPECT_FALSE(Complains("error file h"));
    ExpectUntouched();
    WriteBytes(offset, bytes);
    EXPECT_EQ(Content("f"), "fff");
}

TEST_F(CheckPagesTest, OfWhatIsKeptTwice) {
    const TreeSuperblock superblock = Load().superblock;
    for (const uint64_t offset :
         {OffsetOf(superblock.roots.names), OffsetOf(superblock.roots.space_summaries),
          MapUnits(superblock).front() * ALLOCATION_UNIT_BYTES}) {
        const std::string bytes = ReadBytes(offset, LBA);
        WriteBytes(offset, std::string(LBA, 'x'));
        EXPECT_EQ(Complaints(), Strings{"error metadata"});
        for (const char *name : {"f", "g"}) {
            EXPECT_EQ(Content(name), std::string(3, *name));
        }
        ExpectUntouched();
        WriteBytes(offset, bytes);
        EXPECT_TRUE(Complaints().empty());
    }
}

} // namespace

} // namespace rawduck
