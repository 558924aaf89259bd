//! A file that is removed and made anew under its name while a volume on it is mounted: two volumes, which
//! never meet. What holds the old one open, a ring of a process that was killed included, keeps its inode, so
//! that the new file has another number and another lock.
#include "support/test_support.hpp"
#include "volume/registry.hpp"

#include <cstdio>

namespace rawduck {
namespace {

std::vector<char> ReadBack(OpenFile &file, size_t length) {
    std::vector<char> data(length);
    EXPECT_EQ(file.Read(data.data(), length, 0), length);
    return data;
}

TEST(RecreatedFile, TheVolumeOnItIsAnotherOne) {
    TemporaryFile file(0);
    FormatOptions format;
    format.size_bytes = 64 * MIB;
    format.force = true;
    Volume::Format(file.Path(), format);
    OpenMode mode;
    mode.write = mode.create = true;
    mode.kind = FileKind::DATABASE;
    const VolumePin removed = PinVolume(file.Path(), MountOptions());
    auto in_removed = removed->Open("a", mode);
    std::vector<char> before = Pattern(256 * KIB, 1), after = Pattern(256 * KIB, 2);
    in_removed->Write(before.data(), before.size(), 0);
    in_removed->Sync();
    ASSERT_EQ(std::remove(file.Path().c_str()), 0);
    Volume::Format(file.Path(), format);
    const VolumePin made_anew = PinVolume(file.Path(), MountOptions());
    EXPECT_NE(removed->Info().uuid, made_anew->Info().uuid);
    auto in_made_anew = made_anew->Open("a", mode);
    in_made_anew->Write(after.data(), after.size(), 0);
    in_made_anew->Sync();
    before = Pattern(256 * KIB, 3);
    in_removed->Write(before.data(), before.size(), 0);
    in_removed->Sync();
    EXPECT_EQ(ReadBack(*in_removed, before.size()), before);
    EXPECT_EQ(ReadBack(*in_made_anew, after.size()), after);
    in_removed->Close();
    in_made_anew->Close();
}

} // namespace
} // namespace rawduck
