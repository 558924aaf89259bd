//! Power cuts at every kind of moment: what was acknowledged is there, what was not is wholly there or not at
//! all.

#include "power_cut_device.hpp"
#include "volume_fixture.hpp"

#include <algorithm>
#include <map>

namespace rawduck {

namespace {

using State = std::map<std::string, std::string>; // name -> content

constexpr uint64_t CAPACITY = 16 * MIB;

Target FakeTarget() {
    Target target;
    target.kind = TargetKind::MEMORY;
    target.name = "memory:power-cut";
    target.path = "power-cut";
    target.identity = "memory:power-cut";
    return target;
}

std::string FormattedImage(uint32_t lba_size) {
    auto trace = std::make_shared<PowerCutTrace>(std::string(CAPACITY, '\0'), lba_size);
    BlockIo io(std::make_unique<PowerCutDevice>(trace), BlockIoOptions(), "memory:power-cut",
               std::make_shared<IoStats>());
    Volume::FormatDevice(io, FormatOptions(), lba_size);
    std::string image(CAPACITY, '\0');
    trace->Read(0, &image[0], CAPACITY);
    return image;
}

State ReadState(Volume &volume) {
    State state;
    for (const FileInfo &info : volume.Files()) {
        state[info.name] = ReadAll(volume, info.name);
    }
    return state;
}

//! Runs operations that each end durable, and remembers after which event each was acknowledged.
class Workload {
  public:
    Workload(std::string image, uint32_t lba_size, State state, std::mt19937_64 &random)
        : trace_(std::make_shared<PowerCutTrace>(std::move(image), lba_size)), random_(random),
          state_(std::move(state)) {
        volume_ = Volume::MountDevice(FakeTarget(), std::make_unique<PowerCutDevice>(trace_), MountOptions(),
                                      std::make_shared<IoStats>());
        EXPECT_EQ(ReadState(*volume_), state_);
        Acknowledge();
    }

    void Run(int steps) {
        for (int i = 0; i < steps; i++) {
            Step();
            Acknowledge();
        }
        volume_.reset();
    }

    size_t Events() const { return trace_->Events(); }
    std::string Cut(size_t events) { return trace_->CutAfter(events, random_); }

    //! Which states may be found after a cut: the last acknowledged one, or the one that was under way.
    std::vector<State> Allowed(size_t events) const {
        size_t last = 0;
        for (size_t i = 0; i < acknowledged_.size(); i++) {
            last = acknowledged_[i].first <= events ? i : last;
        }
        std::vector<State> allowed{acknowledged_[last].second};
        if (last + 1 < acknowledged_.size()) {
            allowed.push_back(acknowledged_[last + 1].second);
        }
        return allowed;
    }

  private:
    void Acknowledge() { acknowledged_.emplace_back(trace_->Events(), state_); }
    std::string Name() {
        return std::string(1, static_cast<char>('a' + random_() % 4)) + (random_() % 2 ? ".wal" : ".db");
    }

    void Step() {
        const std::string name = Name();
        const bool exists = state_.count(name) != 0;
        const int action = static_cast<int>(random_() % 8);
        if (exists && action == 0) {
            volume_->Remove(name);
            state_.erase(name);
        } else if (exists && action == 1) {
            const std::string to = Name();
            volume_->Move(name, to);
            if (to != name) {
                state_[to] = state_[name];
                state_.erase(name);
            }
        } else if (exists && action == 2) {
            const uint64_t size = random_() % (state_[name].size() + 1);
            volume_->Open(name, WriteMode())->Truncate(size);
            state_[name].resize(size);
        } else if (exists && action == 3 && state_[name].size() >= 12288) {
            RewriteHeader(name);
        } else {
            Grow(name);
        }
    }
    void RewriteHeader(const std::string &name) {
        auto file = volume_->Open(name, WriteMode());
        const std::string page = RandomBytes(random_, UNIT_SIZE);
        const uint64_t offset = random_() % 3 * UNIT_SIZE;
        file->Write(page.data(), page.size(), offset);
        file->Sync();
        state_[name].replace(offset, page.size(), page);
    }
    // A WAL by appends of any length, a database by headers and blocks behind its end.
    void Grow(const std::string &name) {
        auto file = volume_->Open(name, WriteMode(name.back() == 'b' ? FileKind::DATABASE : FileKind::WAL));
        std::string &content = state_[name];
        if (name.back() == 'b') {
            content.resize(AlignUp(content.size(), UNIT_SIZE), '\0');
            const std::string bytes =
                RandomBytes(random_, content.empty() ? 12288 : (1 + random_() % 40) * 4096);
            file->Write(bytes.data(), bytes.size(), content.size());
            content += bytes;
        } else {
            for (uint64_t i = random_() % 3 + 1; i > 0; i--) {
                const std::string bytes =
                    RandomBytes(random_, random_() % 2 ? random_() % 700 : random_() % 60000);
                file->Append(bytes.data(), bytes.size());
                content += bytes;
            }
        }
        file->Sync();
    }

    std::shared_ptr<PowerCutTrace> trace_;
    std::mt19937_64 &random_;
    State state_;
    std::shared_ptr<Volume> volume_;
    std::vector<std::pair<size_t, State>> acknowledged_;
};

//! Mounts what a cut left and says whether it is an allowed state.
bool Recovers(const std::string &image, uint32_t lba_size, const std::vector<State> &allowed, State &found) {
    auto trace = std::make_shared<PowerCutTrace>(image, lba_size);
    auto volume = Volume::MountDevice(FakeTarget(), std::make_unique<PowerCutDevice>(trace), MountOptions(),
                                      std::make_shared<IoStats>());
    EXPECT_EQ(volume->Info().poisoned, "");
    found = ReadState(*volume);
    return std::find(allowed.begin(), allowed.end(), found) != allowed.end();
}

} // namespace

TEST(PowerCutTest, EveryCrashPointOfSmallWorkloads) {
    for (uint32_t lba_size : {512u, 4096u}) {
        for (uint64_t seed = 1; seed <= 4; seed++) {
            std::mt19937_64 random(seed);
            Workload workload(FormattedImage(lba_size), lba_size, State(), random);
            workload.Run(15);
            for (size_t cut = 0; cut <= workload.Events(); cut++) {
                State found;
                ASSERT_TRUE(Recovers(workload.Cut(cut), lba_size, workload.Allowed(cut), found))
                    << "seed " << seed << ", LBA size " << lba_size << ", cut after event " << cut;
            }
        }
    }
}

TEST(PowerCutTest, CutAfterCutOfOneVolume) {
    for (uint32_t lba_size : {512u, 4096u}) {
        std::mt19937_64 random(lba_size);
        std::string image = FormattedImage(lba_size);
        State state;
        for (int life = 0; life < 60; life++) {
            Workload workload(image, lba_size, state, random);
            workload.Run(1 + static_cast<int>(random() % 12));
            const size_t cut = random() % (workload.Events() + 1);
            image = workload.Cut(cut);
            ASSERT_TRUE(Recovers(image, lba_size, workload.Allowed(cut), state))
                << "life " << life << ", LBA size " << lba_size << ", cut after event " << cut;
        }
    }
}

} // namespace rawduck
