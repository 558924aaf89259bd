//! Random file operations against an oracle in memory, with mounts in between.

#include "common/error.hpp"
#include "support/hooked_device.hpp"
#include "support/volume_fixture.hpp"
#include "volume/check.hpp"
#include "volume/upkeep/defragmenter.hpp"

#include <algorithm>
#include <map>

namespace rawduck {

namespace {

class Model {
  public:
    Model(uint32_t lba_size, uint64_t seed) : memory_(lba_size, 192 * MIB), random_(seed) {
        FormatSmall(lba_size);
        volume_ = Mount();
    }

    void Run(int steps) {
        for (int step = 0; step < steps && !::testing::Test::HasFailure(); step++) {
            Step();
        }
        Remount();
        handles_.clear();
        volume_.reset();
        for (const CheckFinding &finding : CheckVolume(memory_.name)) {
            const bool about_content = finding.what.rfind("file ", 0) == 0; // random bytes are no database
            EXPECT_TRUE(about_content || finding.what == "size" ||
                        finding.severity == CheckFinding::Severity::OK)
                << finding.what << ": " << finding.detail;
        }
    }

  private:
    void Step() {
        switch (random_() % 21) {
        case 0:
        case 1:
            return Create();
        case 2:
        case 3:
        case 4:
            return Append();
        case 5:
        case 6:
        case 7:
            return Write();
        case 8:
            return Truncate();
        case 9:
            return Move();
        case 10:
            return Remove();
        case 11:
            return Close();
        case 12:
            return random_() % 10 == 0 ? Remount() : Sync();
        case 13:
            return snapshots_.size() < 12 ? Snapshot() : Drop();
        case 14:
            return Clone();
        case 15:
            return random_() % 3 == 0 ? Drop() : ReadSnapshot();
        case 16:
            return random_() % 8 == 0 ? Grow() : Sync();
        case 17:
            return Defragment();
        default:
            return ReadBack();
        }
    }

    //! Of a device that tells of less than it has, at first.
    void FormatSmall(uint32_t lba_size) {
        BlockIo io(OpenGrowing(), BlockIoOptions(), memory_.name, std::make_shared<IoStats>());
        Volume::FormatDevice(io, FormatOptions(), lba_size);
    }
    std::unique_ptr<Device> OpenGrowing() {
        return std::make_unique<GrowingDevice>(OpenMemoryDevice(ResolveTarget(memory_.name), DeviceOptions()),
                                               capacity_);
    }
    std::shared_ptr<Volume> Mount() {
        return Volume::MountDevice(ResolveTarget(memory_.name), OpenGrowing(), MountOptions(),
                                   std::make_shared<IoStats>());
    }
    void Grow() {
        *capacity_ = std::min(*capacity_ + random_() % 9 * MIB, 192 * MIB);
        EXPECT_EQ(volume_->Grow(0).after_bytes, *capacity_);
    }

    //! Perhaps not to its end; what it has copied becomes durable with what was written since.
    void Defragment() {
        std::string name;
        if (Pick(name)) {
            const auto defragmenter = volume_->Defragment(name, 0);
            for (uint64_t steps = random_() % 8; steps > 0 && defragmenter->Step(); steps--) {
            }
            Handle(name).Sync();
            durable_[name] = files_[name];
        }
    }

    std::string RandomName() { return "f" + std::to_string(random_() % 12); }
    bool Pick(std::string &name) {
        if (files_.empty()) {
            return false;
        }
        auto entry = files_.begin();
        std::advance(entry, random_() % files_.size());
        name = entry->first;
        return true;
    }
    uint64_t RandomLength() {
        switch (random_() % 4) {
        case 0:
            return random_() % 50;
        case 1:
            return random_() % 6000;
        case 2:
            return (1 + random_() % 8) * 4096;
        default:
            return random_() % 300000;
        }
    }
    //! What is kept, or made into a file of its own, is what is durable, whatever was written since.
    void Snapshot() {
        std::string name;
        if (Pick(name) && durable_.count(name) != 0) {
            const std::string snapshot = "s" + std::to_string(snapshots_made_++);
            volume_->Snapshot(name, snapshot);
            snapshots_[name + "@" + snapshot] = durable_[name];
        }
    }
    void Clone() {
        std::string source;
        const std::string name = RandomName();
        if (files_.count(name) != 0) {
            return;
        }
        if (random_() % 2 == 0 && !snapshots_.empty()) {
            const auto snapshot =
                std::next(snapshots_.begin(), static_cast<long>(random_() % snapshots_.size()));
            volume_->Clone(snapshot->first, name);
            files_[name] = durable_[name] = snapshot->second;
        } else if (Pick(source) && durable_.count(source) != 0) {
            volume_->Clone(source, name);
            files_[name] = durable_[name] = durable_[source];
        }
    }
    void Drop() {
        if (!snapshots_.empty()) {
            const auto snapshot =
                std::next(snapshots_.begin(), static_cast<long>(random_() % snapshots_.size()));
            volume_->DropSnapshot(snapshot->first);
            snapshots_.erase(snapshot);
        }
    }
    void ReadSnapshot() {
        if (!snapshots_.empty()) {
            const auto snapshot =
                std::next(snapshots_.begin(), static_cast<long>(random_() % snapshots_.size()));
            ASSERT_TRUE(ReadAll(*volume_, snapshot->first) == snapshot->second) << snapshot->first;
        }
    }
    OpenFile &Handle(const std::string &name) {
        auto &handle = handles_[name];
        if (!handle) {
            static const FileKind kinds[] = {FileKind::DATABASE, FileKind::WAL, FileKind::OTHER};
            handle = volume_->Open(name, WriteMode(kinds[random_() % 3]));
        }
        return *handle;
    }

    void Create() {
        const std::string name = RandomName();
        Handle(name);
        files_[name];
    }
    void Append() {
        std::string name;
        if (Pick(name)) {
            const std::string bytes = RandomBytes(random_, RandomLength());
            EXPECT_EQ(Handle(name).Append(bytes.data(), bytes.size()), files_[name].size());
            files_[name] += bytes;
        }
    }
    void Write() {
        std::string name;
        if (!Pick(name)) {
            return;
        }
        std::string &content = files_[name];
        uint64_t offset = random_() % (content.size() + 20000);
        std::string bytes = RandomBytes(random_, RandomLength());
        if (random_() % 2 == 0) {
            offset = AlignDown(offset, 4096);
            bytes.resize(AlignUp(bytes.size(), 4096), 'p');
        }
        if (offset + bytes.size() > 3 * MIB) {
            return;
        }
        Handle(name).Write(bytes.data(), bytes.size(), offset);
        if (!bytes.empty() && content.size() < offset + bytes.size()) {
            content.resize(offset + bytes.size(), '\0');
        }
        content.replace(std::min<size_t>(offset, content.size()), bytes.size(), bytes);
    }
    void Truncate() {
        std::string name;
        if (Pick(name)) {
            const uint64_t size = random_() % (files_[name].size() + 1);
            Handle(name).Truncate(size);
            files_[name].resize(size);
            durable_[name] = files_[name];
        }
    }
    void Move() {
        std::string from;
        const std::string to = RandomName();
        if (Pick(from) && from != to) {
            volume_->Move(from, to);
            durable_[to] = durable_.count(from) != 0 ? durable_[from] : files_[from]; // it has to be durable
            durable_.erase(from);
            files_[to] = files_[from];
            files_.erase(from);
            handles_.erase(to);
            if (handles_.count(from) != 0) {
                handles_[to] = std::move(handles_[from]);
                handles_.erase(from);
            }
        }
    }
    void Remove() {
        std::string name;
        if (Pick(name)) {
            volume_->Remove(name);
            files_.erase(name);
            durable_.erase(name);
            if (random_() % 2 == 0) {
                handles_.erase(name);
            } else if (handles_.count(name) != 0) {
                orphans_.push_back(std::move(handles_[name]));
                handles_.erase(name);
                orphans_.resize(std::min<size_t>(orphans_.size(), 3));
            }
        }
    }
    void Sync() {
        std::string name;
        if (Pick(name)) {
            Handle(name).Sync();
            durable_[name] = files_[name];
        }
    }
    void Close() {
        std::string name;
        if (Pick(name) && handles_.count(name) != 0) {
            handles_[name]->Close();
            handles_.erase(name);
            durable_[name] = files_[name];
        }
    }
    void ReadBack() {
        std::string name;
        if (!Pick(name)) {
            return;
        }
        const std::string &content = files_[name];
        const uint64_t offset = random_() % (content.size() + 10);
        const uint64_t length = RandomLength();
        std::string bytes(length, '?');
        const uint64_t read = Handle(name).Read(&bytes[0], length, offset);
        const std::string expected = offset < content.size() ? content.substr(offset, length) : "";
        ASSERT_EQ(read, expected.size());
        bytes.resize(read);
        ASSERT_TRUE(bytes == expected) << name << " at " << offset << " length " << length;
    }
    void Remount() {
        handles_.clear();
        orphans_.clear();
        volume_.reset();
        volume_ = Mount();
        durable_ = files_;
        std::map<std::string, std::string> all = files_;
        all.insert(snapshots_.begin(), snapshots_.end());
        ASSERT_EQ(volume_->Files().size(), all.size());
        for (const auto &[name, content] : all) {
            const std::string read = ReadAll(*volume_, name);
            ASSERT_EQ(read.size(), content.size()) << name;
            const auto differs =
                std::mismatch(read.begin(), read.end(), content.begin()).first - read.begin();
            ASSERT_EQ(static_cast<size_t>(differs), content.size()) << name << ": first wrong byte";
        }
    }

    MemoryVolume memory_;
    const std::shared_ptr<std::atomic<uint64_t>> capacity_ =
        std::make_shared<std::atomic<uint64_t>>(48 * MIB);
    std::mt19937_64 random_;
    std::shared_ptr<Volume> volume_;
    std::map<std::string, std::string> files_, durable_, snapshots_;
    int snapshots_made_ = 0;
    std::map<std::string, std::unique_ptr<OpenFile>> handles_;
    std::vector<std::unique_ptr<OpenFile>> orphans_;
};

} // namespace

TEST(VolumeModelTest, ThousandsOfRandomOperationsMatchTheOracle) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        for (uint32_t lba_size : {512u, 4096u}) {
            SCOPED_TRACE("seed " + std::to_string(seed) + ", LBA size " + std::to_string(lba_size));
            Model(lba_size, seed).Run(2000);
            if (HasFailure()) {
                return;
            }
        }
    }
}

} // namespace rawduck
