//! A limit at every step of a workload: the operation fails or not, what was acknowledged is there.

#include "support/hooked_device.hpp"
#include "support/model_files.hpp"
#include "support/out_of_memory.hpp"
#include "support/test_support.hpp"
#include "support/volume_fixture.hpp"

namespace rawduck {

TEST(LimitStepsTest, AFullVolumeLosesNothing) {
    for (uint64_t seed = 1; seed <= 4; seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const SimulatedVolume simulated(seed % 2 == 0 ? 512 : 4096, 16 * MIB);
        auto volume = simulated.Mount();
        const std::string rest(10 * MIB, 'r');
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
            allocations = step % 3 == 2 ? static_cast<int64_t>(random() % 60) : -1;
            files.Step();
            ASSERT_EQ(volume->Info().poisoned, "") << "step " << step;
            if (step % 5 == 4) {
                files.CheckDurable(*simulated.MountAfterCut(seed));
            }
            if (step % 30 == 29) {
                files.CheckAll();
                files.CloseAll();
                files.Release();
                volume = simulated.MountAgain(std::move(volume));
                volume->Open("commit", WriteMode())->Append("x", 1); // what the mount has read is durable now
                files.Reopen(volume);
                ASSERT_EQ(volume->Info().poisoned, "");
                files.CheckAll();
            }
        }
        files.RemoveAll();
        EXPECT_LE(volume->Files().size(), 1u);
    }
    EXPECT_GT(failures, 100);
}

//! What DuckDB does to a database, from the first commit of a mount on. Memory runs out once, anywhere in it;
//! what failed is done again.
class StepsOfADatabase {
  public:
    explicit StepsOfADatabase(uint32_t lba_size) : simulated_(lba_size) {
        volume_ = simulated_.Mount();
        for (const char *name : {"old", "x.duckdb.wal.checkpoint", "x.duckdb.wal"}) {
            Make(name);
        }
        volume_ = simulated_.MountAgain(std::move(volume_));
        log_ = volume_->Open("x.duckdb.wal", WriteMode(FileKind::WAL));
    }
    //! Returns whether it did.
    bool Run(int64_t allocations) {
        const OutOfMemoryAfter limit(allocations);
        Do([&] { database_ = volume_->Open("x.duckdb", WriteMode(FileKind::DATABASE)); });
        Do([&] { Change(*database_, content_, std::string(3 * ALLOCATION_UNIT_BYTES + 70000, 'c'), 0); });
        Do([&] { database_->Sync(); });
        Do([&] { Change(*log_, logged_, std::string(700, 'l'), 4); });
        Do([&] { log_->Sync(); });
        Do([&] {
            Change(*database_, content_, std::string(ALLOCATION_UNIT_BYTES, 'h'), ALLOCATION_UNIT_BYTES);
        });
        Do([&] {
            Change(*database_, content_, std::string(3 * ALLOCATION_UNIT_BYTES, 'b'),
                   4 * ALLOCATION_UNIT_BYTES);
        });
        Do([&] { database_->Sync(); });
        Do([&] { Change(*log_, logged_, std::string(9000, 'm'), 704); });
        Do([&] { log_->Sync(); });
        Do([&] { log_->Truncate(8001); });
        logged_.resize(8001);
        Do([&] { Change(*log_, logged_, std::string(5000, 'n'), 8001); });
        Do([&] { log_->Sync(); });
        Check();
        DoOnce("old", [&] { volume_->Remove("old"); });
        DoOnce(checkpoint_, [&] { volume_->Move(checkpoint_, "x.duckdb.wal"); });
        Do([&] { log_->Write("more", 4, logged_.size()); });
        Do([&] { log_->Close(); });
        logged_.assign(checkpoint_);
        Check();
        database_.reset();
        volume_.reset();
        Do([&] { volume_ = simulated_.Mount(); });
        Check();
        return limit.Failed();
    }

  private:
    void Make(const std::string &name) {
        auto file = volume_->Open(name, WriteMode());
        file->Append(name.data(), name.size());
        file->Sync();
        logged_ = name;
    }
    static void Do(const std::function<void()> &operation) {
        try {
            operation();
        } catch (const std::bad_alloc &) {
            operation();
        }
    }
    //! What takes a name away: when it fails it may be done, and then becomes durable with what comes next.
    void DoOnce(const std::string &name, const std::function<void()> &operation) {
        try {
            operation();
        } catch (const std::bad_alloc &) {
            if (volume_->FileExists(name)) {
                operation();
            }
        }
    }
    static void Change(OpenFile &file, std::string &content, const std::string &bytes, uint64_t offset) {
        file.Write(bytes.data(), bytes.size(), offset);
        content.resize(std::max<size_t>(content.size(), offset + bytes.size()));
        content.replace(offset, bytes.size(), bytes);
    }
    void Check() {
        const MemoryAgain again;
        EXPECT_EQ(volume_->Info().poisoned, "");
        for (const auto &found : {volume_, simulated_.MountAfterCut()}) {
            EXPECT_TRUE(ReadAll(*found, "x.duckdb") == content_);
            EXPECT_TRUE(ReadAll(*found, "x.duckdb.wal") == logged_);
        }
    }

    const std::string checkpoint_ = "x.duckdb.wal.checkpoint";
    SimulatedVolume simulated_;
    std::string content_, logged_;
    std::shared_ptr<Volume> volume_;
    std::unique_ptr<OpenFile> database_, log_;
};

TEST(LimitStepsTest, MemoryThatRunsOutOnceFailsOneOperation) {
    for (const uint32_t lba_size : {512u, 4096u}) {
        // What allocates is nearly the same for both sizes: each has every other step.
        int64_t step = lba_size == 512 ? 0 : 1;
        while (StepsOfADatabase(lba_size).Run(step) && !::testing::Test::HasFailure()) {
            step += 2 * OneSeedIn();
        }
        EXPECT_GT(step, 100);
        EXPECT_FALSE(::testing::Test::HasFailure()) << "LBA size " << lba_size << ", step " << step;
    }
}

// The log writes what was queued with the next commit of anybody, and vouches for what it held then.
TEST(LimitStepsTest, WhatChangesAfterAFailedSyncHarmsNobodyElsesCommit) {
    const std::string bytes(3000, 'a'), other_bytes(3000, 'b'), many(100 * KIB, 'c');
    int failures = 0;
    for (int64_t step = 0; step < 60; step++) {
        for (const bool removed : {false, true}) {
            const SimulatedVolume simulated(512);
            auto volume = simulated.Mount();
            auto file = volume->Open("file", WriteMode());
            auto other = volume->Open("other", WriteMode());
            other->Append("1", 1);
            other->Sync();
            file->Append(bytes.data(), bytes.size());
            bool failed = false;
            {
                const OutOfMemoryAfter limit(step);
                try {
                    file->Sync();
                } catch (const std::bad_alloc &) {
                    failed = true;
                }
            }
            failures += failed ? 1 : 0;
            if (removed) {
                volume->Remove("file");
                file.reset();
            } else {
                file->Write(other_bytes.data(), other_bytes.size(), 0);
                file->Append(many.data(), many.size()); // moves to other memory
            }
            other->Append("2", 1);
            other->Sync();
            const auto found = simulated.MountAfterCut();
            EXPECT_EQ(ReadAll(*found, "other"), "12") << "step " << step;
            EXPECT_TRUE(!found->FileExists("file") || ReadAll(*found, "file") == bytes) << "step " << step;
            EXPECT_EQ(volume->Info().poisoned, "");
        }
    }
    EXPECT_GT(failures, 10);
}

// Data that a mount may rely on is not written again when the epoch that it belongs to is begun once more.
TEST(LimitStepsTest, ASyncThatIsDoneAgainAmidAnEpochIsThereAfterACut) {
    const std::string bytes(91303, 'a');
    int failures = 0;
    for (int64_t step = 0; step < 60; step++) {
        const SimulatedVolume simulated(512);
        auto volume = simulated.Mount();
        volume->Open("old", WriteMode())->Append("x", 1);
        volume = simulated.MountAgain(std::move(volume));
        auto file = volume->Open("file", WriteMode());
        file->Append(bytes.data(), 3000);
        file->Append(bytes.data() + 3000, bytes.size() - 3000);
        bool failed = false;
        {
            const OutOfMemoryAfter limit(step);
            try {
                file->Sync();
            } catch (const std::bad_alloc &) {
                failed = true;
            }
        }
        failures += failed ? 1 : 0;
        file->Sync();
        for (uint64_t seed = 1; seed <= 40; seed++) {
            const auto found = simulated.MountAfterCut(seed);
            ASSERT_TRUE(found->FileExists("file")) << "step " << step << ", cut " << seed;
            ASSERT_EQ(ReadAll(*found, "file"), bytes) << "step " << step << ", cut " << seed;
        }
    }
    EXPECT_GT(failures, 10);
}

TEST(LimitStepsTest, MemoryThatRunsOutAnywhereOnAFileEndsNoProcess) {
    const TemporaryFile target(0);
    FormatOptions options;
    options.size_bytes = 16 * MIB;
    options.force = true;
    bool reached = true;
    for (int64_t step = 0; reached; step += OneSeedIn()) {
        ASSERT_LT(step, 2000);
        Volume::Format(target.Path(), options);
        const OutOfMemoryAfter limit(step);
        try {
            const auto volume =
                Volume::Mount(ResolveTarget(target.Path()), MountOptions(), std::make_shared<IoStats>());
            const auto file = volume->Open("file", WriteMode());
            file->Append("x", 1);
            file->Sync();
            file->Close();
            volume->Remove("file");
        } catch (const std::bad_alloc &) {
        } catch (const Error &) {
            // Such as: a ring cannot be made.
        }
        reached = limit.Failed();
    }
}

// What is kept for the last commits is given once: an attempt that failed for want of memory must not have used it.
TEST(LimitStepsTest, WithoutMemoryNothingIsTakenOfWhatIsKeptForTheLast) {
    bool reached = true;
    for (int64_t step = 0; reached; step++) {
        ASSERT_LT(step, 200);
        const MemoryVolume memory(4096, 16 * MIB);
        auto volume = memory.Mount();
        auto log = volume->Open("log", WriteMode(FileKind::WAL));
        for (const uint64_t length : {MIB, 64 * KIB, 32 * KIB}) { // the last does not fit into what is kept
            const std::string bytes(length, 'l');
            try {
                for (;;) {
                    log->Append(bytes.data(), bytes.size());
                }
            } catch (const Error &error) {
                ASSERT_EQ(error.Code(), ErrorCode::NO_SPACE) << error.what();
            }
        }
        const std::string last(16 * KIB, 'l');
        bool failed = false;
        {
            const OutOfMemoryAfter limit(step);
            try {
                log->Append(last.data(), last.size());
            } catch (const std::bad_alloc &) {
                failed = true;
            }
            reached = limit.Failed();
        }
        if (failed) {
            EXPECT_NO_THROW(log->Append(last.data(), last.size())) << "step " << step;
        }
    }
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
