//! A limit at every step of a workload: the operation fails or not, what was acknowledged is there.

#include "hooked_device.hpp"
#include "model_files.hpp"
#include "out_of_memory.hpp"
#include "volume_fixture.hpp"

namespace rawduck {

TEST(LimitStepsTest, AFullVolumeLosesNothing) {
    for (uint64_t seed = 1; seed <= 4; seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const SimulatedVolume simulated(seed % 2 == 0 ? 512 : 4096, 16 * MIB);
        auto volume = simulated.Mount();
        const std::string rest(12 * MIB, 'r');
        volume->Open("rest", WriteMode())->Append(rest.data(), rest.size());
        int refused = 0;
        ModelFiles files(volume, "d", seed, 2 * MIB);
        files.guard = [&](const std::function<void()> &operation) {
            try {
                operation();
            } catch (const Error &error) {
                EXPECT_EQ(error.Code(), ErrorCode::NO_SPACE) << error.what();
                refused++;
                throw;
            }
        };
        for (int step = 0; step < 150 && !::testing::Test::HasFailure(); step++) {
            files.Step();
            if (step % 10 == 9) {
                files.CheckAll();
                files.CheckDurable(*simulated.MountAfterCut(seed));
            }
        }
        EXPECT_GT(refused, 0);
        EXPECT_EQ(volume->Info().poisoned, "");
        files.RemoveAll();
        EXPECT_EQ(volume->Info().used_bytes, rest.size()) << "all else is free again";
    }
}

// Memory runs out at one place after the other; after each, what was acknowledged is found by a mount, and
// can be removed.
TEST(LimitStepsTest, NoAllocationThatFailsLosesAnything) {
    int failures = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const SimulatedVolume simulated(seed % 2 == 0 ? 512 : 4096, 32 * MIB);
        auto volume = simulated.Mount();
        std::mt19937_64 random(seed);
        ModelFiles files(volume, "d", seed, 400 * KIB);
        int64_t allocations = -1;
        files.guard = [&](const std::function<void()> &operation) {
            const OutOfMemoryAfter limit(allocations >= 0 ? allocations : INT64_MAX - 1);
            try {
                operation();
            } catch (const std::exception &) {
                failures += limit.Failed() ? 1 : 0;
                throw;
            }
        };
        for (int step = 0; step < 120 && !::testing::Test::HasFailure(); step++) {
            allocations = step % 3 == 2 ? static_cast<int64_t>(random() % 25) : -1;
            files.Step();
            if (!volume->Info().poisoned.empty() || step % 30 == 29) {
                const bool killed = !volume->Info().poisoned.empty();
                killed ? files.CheckDurable(*simulated.MountAfterCut(seed)) : files.CheckAll();
                files.CloseAll();
                files.Release();
                volume = simulated.MountAgain(std::move(volume));
                volume->Open("commit", WriteMode())->Append("x", 1); // what the mount has read is durable now
                killed ? files.Adopt(volume) : files.Reopen(volume);
                ASSERT_EQ(volume->Info().poisoned, "");
                files.CheckAll();
            }
        }
        files.RemoveAll();
        EXPECT_LE(volume->Files().size(), 1u);
    }
    EXPECT_GT(failures, 100);
}

TEST(LimitStepsTest, AFailedWriteIntoAHoleShowsNobodysBytes) {
    const MemoryVolume memory(4096, 32 * MIB);
    auto volume = memory.Mount();
    {
        const std::string old(16 * MIB, 'o');
        auto before = volume->Open("before", WriteMode());
        before->Append(old.data(), old.size());
        before->Sync();
    }
    volume->Remove("before"); // its bytes are where the next file will lie
    auto file = volume->Open("file", WriteMode());
    const std::string page(4096, 'p');
    file->Write(page.data(), page.size(), 0);
    file->Write(page.data(), page.size(), 16 * page.size());
    file->Sync();
    int failures = 0;
    for (int64_t step = 0; step < 40; step++) {
        bool failed = false;
        {
            const OutOfMemoryAfter limit(step);
            try {
                file->Write(page.data(), page.size(), 8 * page.size());
            } catch (const std::bad_alloc &) {
                failed = true;
            }
        }
        if (!failed) {
            break;
        }
        failures++;
        std::string found(page.size(), '?');
        ASSERT_EQ(file->Read(&found[0], found.size(), 8 * page.size()), found.size());
        EXPECT_EQ(found.find('o'), std::string::npos) << "step " << step;
    }
    EXPECT_GT(failures, 0);
}

TEST(LimitStepsTest, AFileDoesNotReachBehindTheLastPossibleByte) {
    const MemoryVolume memory(512);
    auto volume = memory.Mount();
    auto file = volume->Open("file", WriteMode());
    for (const uint64_t offset : {UINT64_MAX - 1, UINT64_MAX - 1023, uint64_t(INT64_MAX)}) {
        EXPECT_EQ(FailureOf([&] { file->Write("x", 1, offset); }), ErrorCode::INVALID) << offset;
    }
    EXPECT_EQ(file->Size(), 0u);
}

} // namespace rawduck
