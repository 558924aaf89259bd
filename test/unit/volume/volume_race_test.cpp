//! Operations on names while a file is synced for the first time: the log learns of the file and of what
//! happens to its name in the one order that makes sense.

#include "common/error.hpp"
#include "support/hooked_device.hpp"

#include <condition_variable>
#include <thread>

namespace rawduck {

namespace {

const std::string CONTENT(600 * KIB, 'c');

//! In pieces that are collected in memory: so many that a Sync writes them before it tells the log.
void AppendContent(OpenFile &file) {
    for (uint64_t done = 0; done < CONTENT.size(); done += 30 * KIB) {
        file.Append(CONTENT.data() + done, 30 * KIB);
    }
}

class VolumeRaceTest : public ::testing::Test {
  protected:
    //! Makes a file, and while its first Sync writes, `race` does something to its name in another thread.
    //! The write goes on when that is done, or waits for the Sync.
    void SyncBeside(const std::string &name, const std::function<void()> &race) {
        auto file = volume->Open(name, WriteMode());
        AppendContent(*file);
        std::mutex mutex;
        std::condition_variable done_changed;
        bool done = false;
        std::thread other;
        // A checkpoint may be written in the background at the same time.
        simulated.hook->Set([&, syncing = std::this_thread::get_id()](const Command &command) {
            if (std::this_thread::get_id() != syncing || command.opcode != Opcode::WRITE ||
                other.joinable()) {
                return;
            }
            other = std::thread([&] {
                EXPECT_NO_THROW(race());
                std::lock_guard<std::mutex> guard(mutex);
                done = true;
                done_changed.notify_all();
            });
            std::unique_lock<std::mutex> lock(mutex);
            done_changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; });
        });
        EXPECT_NO_THROW(file->Sync());
        ASSERT_TRUE(other.joinable());
        other.join();
        simulated.hook->Set(nullptr);
        file->Close();
        ASSERT_EQ(volume->Info().poisoned, "");
        found = simulated.MountAfterCut();
    }

    SimulatedVolume simulated{512};
    std::shared_ptr<Volume> volume = simulated.Mount();
    std::shared_ptr<Volume> found; //!< after a power cut at the end
};

} // namespace

TEST_F(VolumeRaceTest, AFileIsMovedDuringItsFirstSync) {
    SyncBeside("a", [&] { volume->Move("a", "b"); });
    EXPECT_FALSE(found->FileExists("a"));
    EXPECT_TRUE(ReadAll(*found, "b") == CONTENT);
}

TEST_F(VolumeRaceTest, AFileIsReplacedDuringItsFirstSync) {
    volume->Open("new", WriteMode())->Append("new", 3);
    SyncBeside("old", [&] { volume->Move("new", "old"); });
    EXPECT_EQ(found->Files().size(), 1u);
    EXPECT_EQ(ReadAll(*found, "old"), "new");
}

TEST_F(VolumeRaceTest, AFileIsRemovedDuringItsFirstSync) {
    SyncBeside("a", [&] { volume->Remove("a"); });
    EXPECT_EQ(found->Files().size(), 0u);
    EXPECT_EQ(volume->Info().used_bytes, 0u) << "all of its space is free again";
}

TEST_F(VolumeRaceTest, ADirectoryIsRemovedDuringTheFirstSyncOfAFileInIt) {
    SyncBeside("d/a", [&] { EXPECT_TRUE(volume->RemoveDirectory("d", true)); });
    EXPECT_EQ(found->Files().size(), 0u);
    EXPECT_EQ(volume->Info().used_bytes, 0u);
}

TEST_F(VolumeRaceTest, AnotherFileOfTheNameIsMadeDuringTheFirstSync) {
    SyncBeside("a", [&] {
        volume->Move("a", "b");
        volume->Open("a", WriteMode())->Append("other", 5);
    });
    EXPECT_TRUE(ReadAll(*found, "b") == CONTENT);
    EXPECT_EQ(ReadAll(*found, "a"), "other");
}

// Nothing of a Sync that cannot write is forgotten: the next one makes it durable.
TEST_F(VolumeRaceTest, ASyncThatCannotWriteItsDataLeavesTheVolumeAsItWas) {
    auto file = volume->Open("a", WriteMode());
    AppendContent(*file);
    simulated.medium->Inject(SimulatedFault::WRITE_ERROR, simulated.medium->Events());
    EXPECT_THROW(file->Sync(), Error);
    EXPECT_EQ(volume->Info().poisoned, "");
    EXPECT_EQ(simulated.MountAfterCut()->Files().size(), 0u);
    file->Sync();
    EXPECT_TRUE(ReadAll(*simulated.MountAfterCut(), "a") == CONTENT);
}

} // namespace rawduck
