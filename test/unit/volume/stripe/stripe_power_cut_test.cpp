//! Power cuts of volumes on several devices: all go at one moment, and each loses what it has not flushed.

#include "support/test_support.hpp"
#include "volume/stripe/stripe_fixture.hpp"

#include <algorithm>
#include <map>

namespace rawduck {
namespace {

using State = std::map<std::string, std::string>; // name -> content

State ReadState(Volume &volume) {
    State state;
    for (const FileInfo &info : volume.Files()) {
        state[info.name] = ReadAll(volume, info.name);
    }
    return state;
}

//! Operations that each end durable, and the moment at which each was acknowledged.
class Life {
  public:
    Life(Media media, State state, std::mt19937_64 &random)
        : media_(std::move(media)), random_(random), state_(std::move(state)), volume_(MountMedia(media_)) {
        EXPECT_EQ(ReadState(*volume_), state_);
        begin_ = SimulatedMedium::Moment();
        Acknowledge();
    }

    void Run(int steps) {
        for (int i = 0; i < steps; i++) {
            Step();
            Acknowledge();
        }
        volume_.reset();
        end_ = SimulatedMedium::Moment();
    }
    uint64_t Begin() const { return begin_; }
    uint64_t End() const { return end_; }

    //! The last acknowledged state, or the one that was under way.
    bool Allows(uint64_t moment, const State &found) const {
        size_t last = 0;
        for (size_t i = 0; i < acknowledged_.size(); i++) {
            last = acknowledged_[i].first <= moment ? i : last;
        }
        return found == acknowledged_[last].second ||
               (last + 1 < acknowledged_.size() && found == acknowledged_[last + 1].second);
    }

  private:
    void Acknowledge() { acknowledged_.emplace_back(SimulatedMedium::Moment(), state_); }
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
        } else {
            Grow(name);
        }
    }
    void Grow(const std::string &name) {
        const bool is_database = name.back() == 'b';
        auto file = volume_->Open(name, WriteMode(is_database ? FileKind::DATABASE : FileKind::WAL));
        std::string &content = state_[name];
        const std::string bytes =
            RandomBytes(random_, is_database ? 12288 + random_() % 90 * 4096 : 1 + random_() % 60000);
        if (is_database) {
            content.resize(AlignUp(content.size(), ALLOCATION_UNIT_BYTES), '\0');
            file->Write(bytes.data(), bytes.size(), content.size());
        } else {
            file->Append(bytes.data(), bytes.size());
        }
        content += bytes;
        file->Sync();
    }

    Media media_;
    std::mt19937_64 &random_;
    State state_;
    std::shared_ptr<Volume> volume_;
    std::vector<std::pair<uint64_t, State>> acknowledged_;
    uint64_t begin_ = 0, end_ = 0;
};

//! Some devices take FUA, and some have no cache that could lose anything.
std::vector<SimulatedOptions> Devices(size_t count, uint64_t seed) {
    std::vector<SimulatedOptions> options;
    for (size_t i = 0; i < count; i++) {
        options.push_back(MemberOptions(seed % 2 == 0 ? 512 : 4096));
        options.back().fua = seed % 3 == 0 ? SimulatedFua::NONE : SimulatedFua::HONOURED;
        options.back().volatile_write_cache = seed % 4 != 3 || i > 0;
        options.back().seed = seed * 16 + i;
    }
    return options;
}

} // namespace

TEST(StripePowerCutTest, NothingIsLost) {
    for (uint64_t seed = 0; seed < 12; seed++) {
        const size_t count = 2 + seed % 3;
        std::mt19937_64 random(seed);
        const Media media = FormatMembers(Devices(count, seed), seed % 2 == 0 ? 16 * KIB : 64 * KIB);
        Life life(media, State(), random);
        life.Run(10);
        for (uint64_t moment = life.Begin(); moment <= life.End(); moment++) {
            const State found = ReadState(*MountMedia(CutAt(media, moment, seed + moment)));
            ASSERT_TRUE(life.Allows(moment, found))
                << count << " members, seed " << seed << ", cut at moment " << moment - life.Begin();
        }
    }
}

// The headers are written at the beginning of each life, so these are cut, too.
TEST(StripePowerCutTest, CutAfterCut) {
    for (uint64_t seed = 0; seed < 4; seed++) {
        std::mt19937_64 random(seed);
        Media media = FormatMembers(Devices(2 + seed % 3, seed));
        media = CutAt(media, SimulatedMedium::Moment(), 0);
        State state;
        for (uint64_t number = 0; number < 60; number++) {
            Life life(media, state, random);
            const uint64_t begin = life.Begin();
            life.Run(1 + static_cast<int>(random() % 6));
            const uint64_t cut = begin + random() % (life.End() - begin + 1);
            media = CutAt(media, cut, number);
            state = ReadState(*MountMedia(media));
            ASSERT_TRUE(life.Allows(cut, state)) << "seed " << seed << ", life " << number;
        }
    }
}

// Of a member whose last copy is torn by the second cut, the first one must not be the one that the first cut left old. The
// members are found elsewhere each time, so that all LBAs of a header change.
TEST(StripePowerCutTest, ASecondCutWhileHeadersAreRenewed) {
    const auto begin_writing = [](const Media &media, const std::string &place) {
        const uint64_t begin = SimulatedMedium::Moment();
        MountMedia(media, place)->Open("a", WriteMode());
        return std::make_pair(begin, SimulatedMedium::Moment());
    };
    for (uint64_t seed = 0; seed < 20; seed += OneSeedIn()) {
        const Media media = FormatMembers({MemberOptions(), MemberOptions()});
        const auto [begin, end] = begin_writing(media, "/once");
        for (uint64_t moment = begin; moment <= end; moment++) {
            const Media once = CutAt(media, moment, seed);
            const auto [again, done] = begin_writing(once, "/twice");
            for (uint64_t second = again; second <= done; second++) {
                EXPECT_NO_THROW(MountMedia(CutAt(once, second, seed * 7 + second)))
                    << "seed " << seed << ", cut at " << moment - begin << " and " << second - again;
            }
        }
    }
}

TEST(StripePowerCutTest, AnInterruptedFormatLeavesAWholeVolumeOrNone) {
    const uint64_t begin = SimulatedMedium::Moment();
    const Media media = FormatMembers(Devices(3, 0));
    const uint64_t end = SimulatedMedium::Moment();
    int whole = 0;
    for (uint64_t moment = begin; moment <= end; moment++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            const Media survivors = CutAt(media, moment, seed);
            if (AllAreMembers(survivors)) {
                EXPECT_TRUE(MountMedia(survivors)->Files().empty()) << moment - begin;
                whole++;
            }
        }
    }
    EXPECT_GE(whole, 6) << "when it is done it is there";
}

// These tests would notice if one member were not flushed.
TEST(StripePowerCutTest, AMemberThatIgnoresFuaLosesCommits) {
    std::vector<SimulatedOptions> options = Devices(2, 2);
    options[0].fua = options[1].fua = SimulatedFua::IGNORED;
    std::mt19937_64 random(1);
    const Media media = FormatMembers(options);
    Life life(media, State(), random);
    life.Run(15);
    int lost = 0;
    for (uint64_t moment = life.Begin(); moment <= life.End(); moment++) {
        try {
            lost += life.Allows(moment, ReadState(*MountMedia(CutAt(media, moment, 1)))) ? 0 : 1;
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::CORRUPT) << error.what();
            lost++;
        }
    }
    EXPECT_GT(lost, 0);
}

} // namespace rawduck
