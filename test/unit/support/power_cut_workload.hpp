//! Files of a volume on a simulated device, changed by operations that each end durable, for power cuts.
#pragma once

#include "io/device/simulated/simulated_device.hpp"
#include "support/volume_fixture.hpp"
#include "volume/upkeep/defragmenter.hpp"

#include <map>

namespace rawduck {

using State = std::map<std::string, std::string>; // name -> content

constexpr uint64_t CAPACITY = 16 * MIB;

inline Target FakeTarget() {
    return ResolveTarget("simulated:power-cut");
}

using Medium = std::shared_ptr<SimulatedMedium>;

inline Medium Formatted(uint32_t lba_size, SimulatedFua fua) {
    SimulatedOptions options;
    options.capacity_bytes = CAPACITY;
    options.lba_size = options.atomic_write_bytes = lba_size;
    options.fua = fua;
    auto medium = std::make_shared<SimulatedMedium>(options);
    BlockIo io(OpenSimulatedDevice(medium, FakeTarget(), {}), BlockIoOptions(), FakeTarget().name,
               std::make_shared<IoStats>());
    Volume::FormatDevice(io, FormatOptions(), lba_size);
    return medium;
}

inline Medium Cut(const Medium &medium, uint64_t events, uint64_t seed) {
    PowerCutReport report;
    return medium->PowerCut(events, seed, report);
}

inline std::shared_ptr<Volume> Mount(const Medium &medium) {
    return Volume::MountDevice(FakeTarget(), OpenSimulatedDevice(medium, FakeTarget(), {}), MountOptions(),
                               std::make_shared<IoStats>());
}

inline State ReadState(Volume &volume) {
    State state;
    for (const FileInfo &info : volume.Files()) {
        state[info.name] = ReadAll(volume, info.name);
    }
    return state;
}

//! Runs operations that each end durable, and remembers after which event each was acknowledged.
class Workload {
  public:
    Workload(Medium medium, State state, std::mt19937_64 &random)
        : medium_(std::move(medium)), random_(random), state_(std::move(state)), volume_(Mount(medium_)) {
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

    uint64_t Events() const { return medium_->Events(); }

    //! Which states may be found after a cut: the last acknowledged one, or the one that was under way.
    std::vector<State> Allowed(uint64_t events) const {
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
    void Acknowledge() { acknowledged_.emplace_back(medium_->Events(), state_); }
    std::string Name() {
        return std::string(1, static_cast<char>('a' + random_() % 4)) + (random_() % 2 ? ".wal" : ".db");
    }

    void Step() {
        const std::string name = Name();
        const bool exists = state_.count(name) != 0;
        const int action = static_cast<int>(random_() % 10);
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
        } else if (exists && action == 8 && name.back() == 'b') {
            Snapshot(name);
        } else if (action == 9) {
            Clone();
        } else if (action == 7 && random_() % 2 == 0) {
            Enlarge();
        } else if (exists && action == 6) {
            Defragment(name);
        } else if (exists && action == 3 && state_[name].size() >= 12288) {
            RewriteHeader(name);
        } else {
            Grow(name);
        }
    }
    void Defragment(const std::string &name) {
        if (name.back() == 'b') {
            const auto defragmenter = volume_->Defragment(name, 0);
            while (defragmenter->Step()) {
            }
        }
    }
    //! With few names, so that they are dropped, too.
    void Snapshot(const std::string &name) {
        const std::string snapshot = random_() % 2 ? "one" : "two", file = name + "@" + snapshot;
        if (state_.count(file) != 0) {
            volume_->DropSnapshot(file);
            state_.erase(file);
        } else {
            volume_->Snapshot(name, snapshot);
            state_[file] = state_[name];
        }
    }
    void Clone() {
        const auto source = std::next(state_.begin(), static_cast<long>(random_() % (state_.size() + 1)));
        const std::string name = Name();
        if (source != state_.end() && state_.count(name) == 0 && name.back() == 'b' &&
            source->first.rfind(".wal") == std::string::npos) {
            const std::string content = source->second;
            volume_->Clone(source->first, name);
            state_[name] = content;
        }
    }
    //! The device, and the volume then or the next time.
    void Enlarge() {
        const uint64_t capacity = medium_->CapacityBytes() + (1 + random_() % 4) * MIB / 2;
        medium_->Grow(capacity);
        if (random_() % 4 != 0) {
            EXPECT_EQ(volume_->Grow(0).after_bytes, capacity);
        }
    }
    void RewriteHeader(const std::string &name) {
        auto file = volume_->Open(name, WriteMode());
        const std::string page = RandomBytes(random_, ALLOCATION_UNIT_BYTES);
        const uint64_t offset = random_() % 3 * ALLOCATION_UNIT_BYTES;
        file->Write(page.data(), page.size(), offset);
        file->Sync();
        state_[name].replace(offset, page.size(), page);
    }
    // A WAL by appends of any length, a database by headers and blocks behind its end.
    void Grow(const std::string &name) {
        auto file = volume_->Open(name, WriteMode(name.back() == 'b' ? FileKind::DATABASE : FileKind::WAL));
        std::string &content = state_[name];
        if (name.back() == 'b') {
            content.resize(AlignUp(content.size(), ALLOCATION_UNIT_BYTES), '\0');
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

    Medium medium_;
    std::mt19937_64 &random_;
    State state_;
    std::shared_ptr<Volume> volume_;
    std::vector<std::pair<uint64_t, State>> acknowledged_;
};

} // namespace rawduck
