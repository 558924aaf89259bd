//! Threads carry out every operation of a volume at once: each on names of its own, which are compared with a
//! model, and on names that all of them move files to and from.

#include "support/hooked_device.hpp"
#include "support/model_files.hpp"
#include "volume/check.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

namespace rawduck {

namespace {

constexpr int THREADS = 5;
constexpr int STEPS = 120;
constexpr uint64_t FILE_BYTES_MAX = 400 * KIB;

//! Says of itself whether it is whole.
std::string SharedContent(std::mt19937_64 &random) {
    const char byte = static_cast<char>('a' + random() % 26);
    return std::to_string(random() % 100000) + "!" + std::string(1000 + random() % 50000, byte) + ".";
}
bool IsWhole(const std::string &content) {
    const size_t begin = content.find('!') + 1;
    return begin != 0 && content.size() >= begin + 1001 && content.back() == '.' &&
           content.find_first_not_of(content[begin], begin) == content.size() - 1;
}

//! Names that come and go.
void ExpectMissing(const std::function<void()> &action) {
    try {
        action();
    } catch (const Error &error) {
        EXPECT_EQ(error.Code(), ErrorCode::NOT_FOUND) << error.what();
    }
}

void UseShared(Volume &volume, ModelFiles &own, std::mt19937_64 &random) {
    const auto name = [&] { return "shared/" + std::to_string(random() % 4); };
    switch (random() % 5) {
    case 0:
        return volume.Move(own.Finished(SharedContent(random)), name());
    case 1:
        return ExpectMissing([&] { volume.Remove(name()); });
    case 2:
        return ExpectMissing([&] { volume.Move(name(), name()); });
    case 3:
        return ExpectMissing([&] { EXPECT_TRUE(IsWhole(ReadAll(volume, name()))); });
    default:
        return ExpectMissing([&] { volume.Open(name(), OpenMode())->Size(); });
    }
}

void ExpectSharedWhole(Volume &volume) {
    for (const FileInfo &info : volume.Files()) {
        if (info.name.rfind("shared/", 0) == 0) {
            EXPECT_TRUE(IsWhole(ReadAll(volume, info.name))) << info.name << " of " << info.size;
        }
    }
}

void Round(uint64_t seed) {
    const SimulatedVolume simulated(seed % 2 == 0 ? 512 : 4096, 64 * MIB);
    std::shared_ptr<Volume> volume = simulated.Mount();
    std::vector<std::unique_ptr<ModelFiles>> models;
    for (int t = 0; t < THREADS; t++) {
        models.push_back(std::make_unique<ModelFiles>(volume, "t" + std::to_string(t), seed * THREADS + t,
                                                      FILE_BYTES_MAX));
    }
    for (int life = 0; life < 2; life++) {
        std::vector<std::thread> threads;
        for (int t = 0; t < THREADS; t++) {
            threads.emplace_back([&, t] {
                std::mt19937_64 random(seed * 100 + life * 10 + t);
                for (int step = 0; step < STEPS && !::testing::Test::HasFailure(); step++) {
                    EXPECT_NO_THROW(random() % 4 == 0 ? UseShared(*volume, *models[t], random)
                                                      : models[t]->Step());
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        ASSERT_EQ(volume->Info().poisoned, "");
        PowerCutReport report;
        std::mt19937_64 random(seed);
        const uint64_t events = simulated.medium->Events();
        ExpectSharedWhole(*simulated.MountMedium(
            simulated.medium->PowerCut(events - random() % (events / 2), seed, report)));
        const auto killed = simulated.MountAfterCut(seed);
        for (const auto &model : models) {
            model->CheckAll();
            model->CheckDurable(*killed);
            model->CloseAll();
            model->Release();
        }
        ExpectSharedWhole(*killed);
        volume = simulated.MountAgain(std::move(volume));
        for (const auto &model : models) {
            model->Reopen(volume);
            model->CheckAll();
        }
        ExpectSharedWhole(*volume);
    }
}

} // namespace

TEST(VolumeThreadsTest, EveryOperationInEveryThreadMatchesTheModel) {
    const char *setting = std::getenv("RAWDUCK_MODEL_SECONDS");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(setting ? atoi(setting) : 3);
    for (uint64_t seed = 1; seed <= 2 || std::chrono::steady_clock::now() < end; seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Round(seed);
        if (HasFailure()) {
            return;
        }
    }
}

} // namespace rawduck
