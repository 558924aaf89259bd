//! What a mount, a check and a repair make of a damaged metadata page.

#include "support/damaged_volume.hpp"

#include <algorithm>
#include <array>

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

TEST_F(CheckPagesTest, IsInterrupted) {
    EXPECT_EQ(FailureOf([&] { CheckVolume(target.name, [] { return true; }); }), ErrorCode::INTERRUPTED);
    EXPECT_TRUE(Complaints().empty());
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

// What an error in the code that wrote it would leave: all checksums are right.
class WrongPagesTest : public CheckPagesTest {
  protected:
    WrongPagesTest() {
        Mount()->Snapshot("f", "s");
        Commit("last", 1, "n"); // so that it is in the checkpoint
    }
    void ChangePage(const PagePointer &place, const std::function<void(TreePage &)> &change) {
        const uint64_t offset = place.unit * ALLOCATION_UNIT_BYTES;
        alignas(ALLOCATION_UNIT_BYTES) char bytes[TREE_PAGE_BYTES];
        ReadBytes(offset, sizeof bytes).copy(bytes, sizeof bytes);
        TreePage page(bytes);
        change(page);
        page.Seal(Load().superblock.uuid, place);
        WriteBytes(offset, std::string(bytes, sizeof bytes));
    }
    //! Calls `change` with one of the roots after the other, and `expect` once superblocks say that.
    void ChangeEachRoot(const std::function<void(TreeRoot &)> &change, const std::function<void()> &expect) {
        const TreeSuperblock superblock = ReadCopy(0);
        for (const auto &root :
             {&CatalogRoots::names, &CatalogRoots::files, &CatalogRoots::tails, &CatalogRoots::space_maps,
              &CatalogRoots::space_summaries, &CatalogRoots::references}) {
            TreeSuperblock changed = superblock;
            ASSERT_EQ((changed.roots.*root).levels, 1u);
            change(changed.roots.*root);
            WriteCopy(0, changed);
            WriteCopy(1, changed);
            expect();
        }
        WriteCopy(0, superblock);
        WriteCopy(1, superblock);
    }
};

TEST_F(WrongPagesTest, OfReferences) {
    const PagePointer place = Roots().references.page;
    const uint64_t offset = place.unit * ALLOCATION_UNIT_BYTES;
    const std::string page = ReadBytes(offset, TREE_PAGE_BYTES);
    for (const auto &[units, references] :
         std::vector<std::pair<uint64_t, uint64_t>>{{0, 2}, {UINT64_MAX, 2}, {1, 1}, {1, 0}, {1, 3}}) {
        ChangePage(place, [&, range = std::array<uint64_t, 2>{units, references}](TreePage &leaf) {
            leaf.Replace(0, {reinterpret_cast<const char *>(range.data()), sizeof range});
        });
        EXPECT_EQ(Complaints(), Strings{"error metadata"});
        for (const char *name : {"f", "f@s", "g"}) {
            EXPECT_EQ(Content(name), std::string(3, *name));
        }
        ExpectUntouched();
    }
    WriteBytes(offset, page);
    EXPECT_TRUE(Complaints().empty());
    EXPECT_TRUE(TakesWrites());
}

// A mount that took them for its own would change them in place.
TEST_F(WrongPagesTest, OfTheMountThatIsToCome) {
    const uint64_t generation = NumberInMount(Load().superblock.mounts + 1, 1);
    uint64_t offset = 0;
    std::string page;
    ChangeEachRoot(
        [&](TreeRoot &root) {
            offset = root.page.unit * ALLOCATION_UNIT_BYTES;
            page = ReadBytes(offset, TREE_PAGE_BYTES);
            root.page.generation = generation;
            ChangePage(root.page, [](TreePage &) {});
        },
        [&] {
            EXPECT_TRUE(Complains("error metadata"));
            ExpectUntouched();
            WriteBytes(offset, page);
        });
    EXPECT_TRUE(TakesWrites());
}

TEST_F(WrongPagesTest, ThatLieOutside) {
    for (const uint64_t unit : {CAPACITY / ALLOCATION_UNIT_BYTES - 1, CAPACITY / ALLOCATION_UNIT_BYTES,
                                uint64_t(1) << 40, UINT64_MAX}) {
        ChangeEachRoot([&](TreeRoot &root) { root.page.unit = unit; },
                       [&] {
                           EXPECT_TRUE(Complains("error metadata"));
                           ExpectUntouched();
                       });
    }
    EXPECT_TRUE(TakesWrites());
}

} // namespace

} // namespace rawduck
