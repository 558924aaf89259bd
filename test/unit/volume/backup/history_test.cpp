//! Random histories of a database, its log and its snapshots, sent to a copy that must have what the original had.

#include "support/test_support.hpp"
#include "volume/backup/streams.hpp"
#include "volume/check.hpp"

namespace rawduck {

namespace {

using Files = std::map<std::string, std::string>; // ending -> content

//! A database that changes, with what its snapshots must hold.
class History {
  public:
    History(std::string target, uint64_t seed) : target_(std::move(target)), random_(seed) {}

    void Change() {
        const VolumePin volume = PinVolume(target_, MountOptions());
        for (uint64_t i = random_() % 6 + 1; i > 0; i--) {
            Step(*volume, random_() % 4 == 0 && !now_.empty() ? ".wal" : "");
        }
        const std::string name = "s" + std::to_string(snapshots.size());
        volume->Snapshot("x.duckdb", name);
        snapshots.push_back(now_);
    }

    std::vector<Files> snapshots;

  private:
    void Step(Volume &volume, const std::string &ending) {
        const std::string name = "x.duckdb" + ending;
        std::string &content = now_[ending];
        const uint64_t action = random_() % 12;
        if (action == 0 && !ending.empty()) {
            if (volume.FileExists(name)) {
                volume.Remove(name);
            }
            now_.erase(ending);
            return;
        }
        const auto file = volume.Open(name, WriteMode(FileKind::DATABASE));
        if (action == 1) {
            content.resize(random_() % (content.size() + 1));
            file->Truncate(content.size());
        } else if (action < 4) {
            // Leaves a hole.
            Write(*file, content, content.size() + random_() % 100000, random_() % 5000);
        } else if (action < 7) {
            Write(*file, content, content.size(), random_() % 60000);
        } else {
            const uint64_t at = content.empty() ? 0 : random_() % content.size();
            Write(*file, content, random_() % 2 ? AlignDown(at, 4096) : at,
                  random_() % 2 ? 4096 * (1 + random_() % 8) : random_() % 9000);
        }
        file->Close();
    }
    void Write(OpenFile &file, std::string &content, uint64_t offset, uint64_t length) {
        const std::string bytes = RandomBytes(random_, length + 1);
        file.Write(bytes.data(), bytes.size(), offset);
        content.resize(std::max(content.size(), offset + bytes.size()), '\0');
        content.replace(offset, bytes.size(), bytes);
    }

    const std::string target_;
    std::mt19937_64 random_;
    Files now_;
};

Files FilesOf(const std::string &target, const std::string &name) {
    const VolumePin volume = PinVolume(target, MountOptions());
    Files files;
    for (const std::string &ending : StreamEndings()) {
        if (volume->FileExists(name + ending)) {
            files[ending] = ReadAll(*volume, name + ending);
        }
    }
    return files;
}

//! Sends a snapshot in as many streams as it takes: all but the last are cut off.
void SendCutOff(const std::string &from, const std::string &to, const std::string &snapshot,
                const std::string &since, std::mt19937_64 &random) {
    std::string token;
    for (int i = 0; i < 3; i++) {
        const std::string stream = Sent(from, "x.duckdb@" + snapshot, {since, random() % 2 ? token : ""});
        const std::string part = stream.substr(0, random() % stream.size());
        EXPECT_EQ(FailureOf([&] { Receive(to, "copy.duckdb", part, true); }), ErrorCode::CORRUPT);
        const std::optional<Origin> received = FindReceived(*PinVolume(to, MountOptions()), "copy.duckdb");
        token = received ? ResumeToken(received->header, received->reached) : "";
    }
    Receive(to, "copy.duckdb", Sent(from, "x.duckdb@" + snapshot, {since, token}), true);
}

void Live(uint64_t seed) {
    std::mt19937_64 random(seed);
    const MemoryVolume from(seed % 2 ? 512 : 4096), to(seed % 3 ? 512 : 4096);
    History history(from.name, seed);
    std::vector<size_t> there; // the snapshots that the copy has
    size_t last = SIZE_MAX;
    for (int step = 0; step < 25; step++) {
        history.Change();
        if (random() % 4 == 0) {
            continue;
        }
        const size_t wanted = history.snapshots.size() - 1;
        const bool in_full = there.empty() || random() % 6 == 0;
        const size_t base = in_full ? 0 : there[random() % there.size()];
        const std::string since = in_full ? "" : "s" + std::to_string(base),
                          name = "s" + std::to_string(wanted);
        if (random() % 2) {
            SendCutOff(from.name, to.name, name, since, random);
        } else {
            const bool overwrite = in_full || base != last;
            Receive(to.name, "copy.duckdb", Sent(from.name, "x.duckdb@" + name, {since, ""}), overwrite);
        }
        last = wanted;
        there.push_back(wanted);
        ASSERT_EQ(FilesOf(to.name, "copy.duckdb"), history.snapshots[wanted])
            << "seed " << seed << ", step " << step;
        if (there.size() > 3) {
            const size_t at = random() % (there.size() - 1);
            PinVolume(to.name, MountOptions())->DropSnapshot("copy.duckdb@s" + std::to_string(there[at]));
            there.erase(there.begin() + static_cast<std::ptrdiff_t>(at));
        }
    }
    for (const size_t snapshot : there) {
        ASSERT_EQ(FilesOf(to.name, "copy.duckdb@s" + std::to_string(snapshot)), history.snapshots[snapshot])
            << "seed " << seed;
    }
    RequireSound(from.name);
    RequireSound(to.name);
}

} // namespace

TEST(BackupHistoryTest, TheCopyHasWhatTheOriginalHad) {
    for (uint64_t seed = 1; seed <= 16; seed += OneSeedIn()) {
        ASSERT_NO_FATAL_FAILURE(Live(seed));
    }
}

} // namespace rawduck
