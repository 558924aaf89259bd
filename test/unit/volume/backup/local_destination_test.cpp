//! Streams that are restored to ordinary files.

#include "volume/backup/local_destination.hpp"
#include "volume/backup/streams.hpp"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rawduck {

namespace {

class LocalDestinationTest : public ::testing::Test {
  protected:
    LocalDestinationTest() {
        char name[] = "rawduck_restore_XXXXXX";
        folder = std::filesystem::absolute(mkdtemp(name));
        const VolumePin volume = PinVolume(from.name, MountOptions());
        for (const char *file : {"x.duckdb", "x.duckdb.wal", "x.duckdb.wal.checkpoint"}) {
            volume->Open(file, WriteMode(FileKind::DATABASE))->Write(file, strlen(file), 0);
        }
        volume->Snapshot("x.duckdb", "monday");
        full = Sent(from.name, "x.duckdb@monday");
    }
    ~LocalDestinationTest() override { std::filesystem::remove_all(folder); }
    std::string Path(const std::string &name) const { return (folder / name).string(); }
    std::unique_ptr<Receiver> Receiving() const {
        return std::make_unique<Receiver>(std::make_unique<StringSource>(full),
                                          std::make_unique<LocalDestination>(Path("y.duckdb")));
    }
    std::map<std::string, std::string> Files() const {
        std::map<std::string, std::string> files;
        for (const auto &entry : std::filesystem::directory_iterator(folder)) {
            std::ifstream file(entry.path());
            files[entry.path().filename().string()] = std::string(std::istreambuf_iterator<char>(file), {});
        }
        return files;
    }
    const MemoryVolume from{512};
    std::filesystem::path folder;
    std::string full;
};

} // namespace

TEST_F(LocalDestinationTest, AllOfItHasItsNames) {
    const auto receiver = Receiving();
    while (receiver->ReceivePiece()) {
    }
    const std::map<std::string, std::string> made{{"y.duckdb", "x.duckdb"},
                                                  {"y.duckdb.wal", "x.duckdb.wal"},
                                                  {"y.duckdb.wal.checkpoint", "x.duckdb.wal.checkpoint"}};
    EXPECT_EQ(Files(), made);
}

// Stock DuckDB of this process attaches the database as soon as it has its name.
TEST_F(LocalDestinationTest, ALockThatIsTakenBeforeTheEndStays) {
    bool was_taken_before = false;
    for (int i = 0; i < 200 && !was_taken_before; i++) {
        std::atomic<bool> is_done{false};
        struct flock lock = {};
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        int fd = -1;
        std::thread stock([&] {
            while (fd < 0 && !is_done) {
                fd = open(Path("y.duckdb").c_str(), O_RDWR | O_CLOEXEC);
            }
            was_taken_before = fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0 && !is_done;
        });
        const auto receiver = Receiving();
        while (receiver->ReceivePiece()) {
        }
        is_done = true;
        stock.join();
        if (was_taken_before) {
            const pid_t child = fork();
            if (child == 0) { // whom the lock keeps out
                struct flock found = lock;
                _exit(fcntl(fd, F_GETLK, &found) == 0 && found.l_type == F_WRLCK ? 0 : 1);
            }
            int status = -1;
            EXPECT_EQ(waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0);
        }
        close(fd);
        for (const auto &[name, content] : Files()) {
            std::filesystem::remove(Path(name));
        }
    }
    EXPECT_TRUE(was_taken_before);
}

// Its log would be replayed into the database of somebody else.
TEST_F(LocalDestinationTest, NothingStaysBesideWhatWasMadeMeanwhile) {
    for (const char *name : {"y.duckdb", "y.duckdb.wal"}) {
        {
            const auto receiver = Receiving();
            receiver->ReceivePiece();
            std::ofstream(Path(name)) << "somebody's own";
            EXPECT_EQ(FailureOf([&] {
                          while (receiver->ReceivePiece()) {
                          }
                      }),
                      ErrorCode::EXISTS);
        }
        const std::map<std::string, std::string> left{{name, "somebody's own"}};
        EXPECT_EQ(Files(), left);
        std::filesystem::remove(Path(name));
    }
}

} // namespace rawduck
