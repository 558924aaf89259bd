//! Rings that one queue leaves to the next.
#include "common/memory/aligned_buffer.hpp"
#include "io/engine/io_uring.hpp"
#include "io/engine/ring/ring_cache.hpp"
#include "support/test_support.hpp"
#include "target/system/file_descriptor.hpp"

#include <filesystem>
#include <sys/resource.h>
#include <thread>

namespace rawduck {
namespace {

//! Open ones; in a child, its parent's too.
size_t Rings() {
    size_t rings = 0;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        rings += std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:[io_uring]" ? 1 : 0;
    }
    return rings;
}

//! Each test in a process of its own: no test before it has left it rings.
class RingCacheTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!IoUringObstacle().empty()) {
            GTEST_SKIP() << IoUringObstacle();
        }
    }

    //! Opens the file, reads a sector of it through a queue of its own, and closes it.
    static bool ReadOnce(const std::string &path, QueueUse use = QueueUse::OWNED, uint32_t depth = 8) {
        auto device = OpenIoUringDevice(ResolveTarget(path), {}, "test");
        auto queue = device->CreateQueue(depth, use);
        AlignedBuffer buffer(8192);
        Command commands[2], *completed[2];
        for (Command &command : commands) {
            command.length = 4096;
            command.data = buffer.Data() + (&command - commands) * 4096;
            if (!queue->Submit(command)) {
                return false;
            }
        }
        uint32_t count = 0;
        while (count < 2) {
            count += queue->Reap(completed, 2, true);
        }
        return commands[0].result == 4096 && commands[1].result == 4096;
    }

    TemporaryFile file_{64 * KIB}, other_{64 * KIB};
};

TEST_F(RingCacheTest, OneRingServesManyFiles) {
    EXPECT_TRUE(InChild([&] {
        const size_t copied = Rings();
        bool good = true;
        for (int i = 0; i < 20; i++) {
            good = good && ReadOnce(file_.Path()) && ReadOnce(other_.Path());
        }
        return good && Rings() == copied + 1;
    }));
}

TEST_F(RingCacheTest, AnotherThreadAndAnotherDepthHaveTheirOwn) {
    EXPECT_TRUE(InChild([&] {
        const size_t copied = Rings();
        bool good = ReadOnce(file_.Path());
        std::thread([&] { good = ReadOnce(file_.Path()) && good; }).join();
        return good && ReadOnce(file_.Path(), QueueUse::OWNED, 16) && ReadOnce(file_.Path()) &&
               ReadOnce(file_.Path(), QueueUse::SHARED) && Rings() >= copied + 3;
    }));
}

TEST_F(RingCacheTest, AThreadsRingsEndWithIt) {
    EXPECT_TRUE(InChild([&] {
        bool good = ReadOnce(file_.Path());
        const size_t before = Rings();
        for (int i = 0; i < 20; i++) {
            std::thread([&] { good = ReadOnce(file_.Path()) && ReadOnce(other_.Path()) && good; }).join();
        }
        return good && Rings() == before;
    }));
}

TEST_F(RingCacheTest, ARingWhoseThreadHasEndedIsNotKept) {
    EXPECT_TRUE(InChild([&] {
        const size_t before = Rings();
        auto device = OpenIoUringDevice(ResolveTarget(file_.Path()), {}, "test");
        std::unique_ptr<Queue> queue;
        std::thread([&] { queue = device->CreateQueue(8, QueueUse::OWNED); }).join();
        queue.reset();
        return Rings() == before;
    }));
}

TEST_F(RingCacheTest, KeepsFewAndNoneOfAParent) {
    EXPECT_TRUE(InChild([&] {
        const size_t copied = Rings();
        const rlimit few = {512, 512};
        bool good = setrlimit(RLIMIT_NOFILE, &few) == 0;
        for (uint32_t depth = 2; depth < 64; depth++) {
            good = good && ReadOnce(file_.Path(), QueueUse::OWNED, depth);
        }
        good = good && Rings() == copied + 512 / 32;
        good = good && InChild([&] {
                   const size_t inherited = Rings();
                   // The parent's, of this depth, is in use by nobody, and still not this process's.
                   return ReadOnce(file_.Path(), QueueUse::OWNED, 63) && Rings() == inherited + 1;
               });
        return good && CloseIdleRings() && Rings() == copied && !CloseIdleRings();
    }));
}

TEST_F(RingCacheTest, GivesWayWhereDescriptorsAreShort) {
    EXPECT_TRUE(InChild([&] {
        const rlimit few = {128, 128};
        bool good = setrlimit(RLIMIT_NOFILE, &few) == 0 && ReadOnce(file_.Path(), QueueUse::OWNED, 8);
        auto device = OpenIoUringDevice(ResolveTarget(file_.Path()), {}, "test");
        std::vector<FileDescriptor> all;
        do {
            all.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
        } while (all.back().IsOpen());
        return good && device->CreateQueue(32, QueueUse::OWNED) != nullptr;
    }));
}

} // namespace
} // namespace rawduck
