#include "direct/direct_file.hpp"

#include "common/error.hpp"
#include "volume/registry.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rawduck {
namespace {

class DescriptorLimit {
  public:
    explicit DescriptorLimit(rlim_t descriptors) {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit few{descriptors, before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
    DescriptorLimit(const DescriptorLimit &) = delete;
    DescriptorLimit &operator=(const DescriptorLimit &) = delete;

  private:
    rlimit before_{};
};

//! Direct I/O needs a file system that offers it, which the one of the temporary directory may not.
class DirectFileTest : public testing::Test {
  protected:
    void SetUp() override {
        char directory[] = "/var/tmp/rawduck_direct_XXXXXX";
        ASSERT_NE(mkdtemp(directory), nullptr);
        directory_ = directory;
        path_ = directory_ + "/file";
        int fd = open((directory_ + "/probe").c_str(), O_CREAT | O_RDWR | O_DIRECT, 0600);
        if (fd < 0) {
            GTEST_SKIP() << directory_ << " is on a file system without O_DIRECT";
        }
        close(fd);
    }
    void TearDown() override { std::system(("rm -rf " + directory_).c_str()); }

    static OpenMode Writing(FileKind kind = FileKind::OTHER) {
        OpenMode options;
        options.write = options.create = true;
        options.kind = kind;
        return options;
    }

    std::string Contents() const {
        std::ifstream stream(path_, std::ios::binary);
        std::ostringstream text;
        text << stream.rdbuf();
        return text.str();
    }

    ErrorCode CodeOf(const OpenMode &options) const {
        try {
            DirectFile::Open(path_, options);
        } catch (const Error &error) {
            return error.Code();
        }
        ADD_FAILURE() << "did not throw";
        return ErrorCode::IO;
    }

    std::string directory_, path_;
};

std::string RandomBytes(std::mt19937 &random, size_t length) {
    std::string bytes(length, '\0');
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random()); });
    return bytes;
}

//! Lengths and offsets near multiples of a page and far from them.
uint64_t RandomPlace(std::mt19937 &random, uint64_t limit) {
    uint64_t place = random() % limit;
    switch (random() % 3) {
    case 0:
        return place;
    case 1:
        return place / 4096 * 4096;
    default:
        return place / 4096 * 4096 + random() % 3;
    }
}

TEST_F(DirectFileTest, EveryMixOfAlignmentsReadsBackAndLeavesTheExactSize) {
    for (auto kind : {FileKind::DATABASE, FileKind::WAL, FileKind::TEMP, FileKind::OTHER}) {
        std::mt19937 random(7);
        unlink(path_.c_str());
        auto file = DirectFile::Open(path_, Writing(kind));
        std::string expected;
        for (int i = 0; i < 150; i++) {
            const std::string data = RandomBytes(random, 1 + RandomPlace(random, 40000));
            const uint64_t offset = i % 3 == 0 ? expected.size() : RandomPlace(random, 100000);
            expected.resize(std::max<size_t>(expected.size(), offset + data.size()));
            expected.replace(offset, data.size(), data);
            file->Write(data.data(), data.size(), offset);
            ASSERT_EQ(file->Size(), expected.size());

            const uint64_t from = RandomPlace(random, expected.size() + 5000);
            std::string buffer(1 + RandomPlace(random, 60000), 'x');
            const uint64_t bytes = file->Read(&buffer[0], buffer.size(), from);
            const uint64_t there = from < expected.size() ? expected.size() - from : 0;
            ASSERT_EQ(bytes, std::min<uint64_t>(buffer.size(), there));
            ASSERT_EQ(buffer.compare(0, bytes, expected, std::min<size_t>(from, expected.size()), bytes), 0)
                << i;
        }
        file->Sync();
        EXPECT_EQ(Contents(), expected);
        file->Truncate(expected.size() / 3);
        expected.resize(expected.size() / 3);
        const uint64_t end = file->Append("tail", 4);
        EXPECT_EQ(end, expected.size());
        file->Close();
        EXPECT_EQ(Contents(), expected + "tail");
    }
}

TEST_F(DirectFileTest, ThreadsMayWriteNeighbouringRangesThatShareAPage) {
    constexpr size_t PIECE = 10007, PIECES = 64, THREADS = 4;
    auto file = DirectFile::Open(path_, Writing());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < THREADS; t++) {
        threads.emplace_back([&, t] {
            for (size_t i = t; i < PIECES; i += THREADS) {
                const std::string data(PIECE, static_cast<char>('A' + i));
                file->Write(data.data(), data.size(), i * PIECE);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    file->Close();
    std::string expected;
    for (size_t i = 0; i < PIECES; i++) {
        expected += std::string(PIECE, static_cast<char>('A' + i));
    }
    EXPECT_EQ(Contents(), expected);
}

TEST_F(DirectFileTest, ReadsOfAnotherHandleSeeWhatIsNotYetSynced) {
    auto writer = DirectFile::Open(path_, Writing());
    auto reader = DirectFile::Open(path_, OpenMode());
    const std::string data(20001, 'a');
    writer->Write(data.data(), data.size(), 0);
    std::string buffer(30000, 'x');
    ASSERT_EQ(reader->Read(&buffer[0], buffer.size(), 0), data.size());
    EXPECT_EQ(buffer.compare(0, data.size(), data), 0);
}

TEST_F(DirectFileTest, CreatingFollowsTheFlags) {
    OpenMode existing;
    existing.write = true;
    EXPECT_EQ(CodeOf(existing), ErrorCode::NOT_FOUND);
    DirectFile::Open(path_, Writing())->Write("abc", 3, 0);
    EXPECT_EQ(Contents(), "abc");
    DirectFile::Open(path_, Writing());
    EXPECT_EQ(Contents(), "abc");
    OpenMode exclusive = Writing();
    exclusive.must_create = true;
    EXPECT_EQ(CodeOf(exclusive), ErrorCode::EXISTS);
    OpenMode truncating = Writing();
    truncating.truncate = true;
    DirectFile::Open(path_, truncating);
    EXPECT_EQ(Contents(), "");
}

TEST_F(DirectFileTest, AReadOnlyHandleRefusesWrites) {
    DirectFile::Open(path_, Writing());
    auto file = DirectFile::Open(path_, OpenMode());
    file->Sync();
    EXPECT_THROW(file->Write("x", 1, 0), Error);
    EXPECT_THROW(file->Truncate(0), Error);
    EXPECT_THROW(file->Deallocate(0, 4096), Error);
}

TEST_F(DirectFileTest, DeallocatedRangesKeepTheSize) {
    auto file = DirectFile::Open(path_, Writing());
    const std::string data(1 << 20, 'a');
    file->Write(data.data(), data.size(), 0);
    if (!file->Deallocate(4096, 512 * 1024)) {
        GTEST_SKIP() << directory_ << " is on a file system that cannot punch holes";
    }
    EXPECT_EQ(file->Size(), data.size());
    char byte = 0;
    ASSERT_EQ(file->Read(&byte, 1, data.size() - 1), 1u);
    EXPECT_EQ(byte, 'a');
}

TEST_F(DirectFileTest, LocksExcludeOtherHandles) {
    OpenMode shared = Writing(), exclusive = Writing();
    shared.lock = OpenMode::Lock::SHARED;
    exclusive.lock = OpenMode::Lock::EXCLUSIVE;
    {
        auto writer = DirectFile::Open(path_, exclusive);
        EXPECT_EQ(CodeOf(exclusive), ErrorCode::LOCKED);
        EXPECT_EQ(CodeOf(shared), ErrorCode::LOCKED);
        EXPECT_EQ(CodeOf(Writing()), ErrorCode::LOCKED) << "it would be written to behind the owner's back";
        OpenMode reading; // asks for no lock, as DuckDB does to look at the magic bytes
        DirectFile::Open(path_, reading);
    }
    auto reader = DirectFile::Open(path_, shared);
    auto another = DirectFile::Open(path_, shared);
    EXPECT_EQ(CodeOf(exclusive), ErrorCode::LOCKED);
    another->Close();
    reader->Close();
    DirectFile::Open(path_, exclusive);
}

TEST_F(DirectFileTest, AFileStaysTheSameWhenItsNameGoesToAnother) {
    const std::string old(256 * KIB + 100, 'o'), fresh(256 * KIB + 100, 'n');
    for (const OpenMode::Lock lock :
         {OpenMode::Lock::NONE, OpenMode::Lock::SHARED, OpenMode::Lock::EXCLUSIVE}) {
        for (const bool removed : {false, true}) {
            std::ofstream(path_, std::ios::binary) << old;
            std::ofstream(path_ + ".new", std::ios::binary) << fresh;
            OpenMode options = Writing();
            options.lock = lock;
            auto file = DirectFile::Open(path_, options);
            ASSERT_EQ(removed ? unlink(path_.c_str()) : rename((path_ + ".new").c_str(), path_.c_str()), 0);
            std::string read(old.size(), '?');
            EXPECT_EQ(file->Read(read.data(), read.size(), 0), old.size());
            EXPECT_TRUE(read == old) << "lock " << static_cast<int>(lock);
            file->Write(std::string(128 * KIB, 'w').data(), 128 * KIB, 64 * KIB);
            EXPECT_EQ(file->Read(read.data(), read.size(), 0), old.size());
            EXPECT_TRUE(read == std::string(old).replace(64 * KIB, 128 * KIB, 128 * KIB, 'w'));
            EXPECT_TRUE(removed || Contents() == fresh) << "the other file was written to";
        }
    }
}

TEST_F(DirectFileTest, WhoeverHasTheLockHasTheFileOfThatName) {
    std::ofstream(path_) << "0";
    std::atomic<bool> done{false};
    std::thread replacing([&] { // as a copy does
        while (!done) {
            std::ofstream(path_ + ".new") << "1";
            const int fd = open(path_.c_str(), O_RDWR);
            struct flock lock = {};
            lock.l_type = F_WRLCK;
            if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
                rename((path_ + ".new").c_str(), path_.c_str());
            }
            close(fd);
        }
    });
    OpenMode options;
    options.write = true;
    options.lock = OpenMode::Lock::EXCLUSIVE;
    for (int opened = 0; opened < 300;) {
        try {
            auto file = DirectFile::Open(path_, options);
            struct stat status;
            EXPECT_EQ(stat(path_.c_str(), &status), 0);
            EXPECT_EQ(file->GetStatus().version, StatusOf(status).version);
            opened++;
        } catch (const Error &) { // it is being replaced
        }
    }
    done = true;
    replacing.join();
}

TEST_F(DirectFileTest, ALockConflictDoesNotTruncate) {
    auto writer = [&] {
        OpenMode options = Writing();
        options.lock = OpenMode::Lock::EXCLUSIVE;
        return DirectFile::Open(path_, options);
    }();
    writer->Write("abc", 3, 0);
    OpenMode options = Writing();
    options.truncate = true;
    options.lock = OpenMode::Lock::EXCLUSIVE;
    EXPECT_EQ(CodeOf(options), ErrorCode::LOCKED);
    EXPECT_EQ(Contents(), "abc");
}

TEST_F(DirectFileTest, APosixLockOfThisProcessIsNotLost) {
    const std::string base = path_;
    // Of one that is called as data the descriptor is asked, and kept until the next one is closed.
    for (const char *ending : {"", ".parquet", ".parquet"}) {
        path_ = base + ending;
        DirectFile::Open(path_, Writing());
        int fd = open(path_.c_str(), O_RDWR);
        ASSERT_GE(fd, 0);
        struct flock lock = {};
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        ASSERT_EQ(fcntl(fd, F_SETLK, &lock), 0);
        EXPECT_EQ(CodeOf(OpenMode()), ErrorCode::LOCKED);
        EXPECT_EQ(CodeOf(OpenMode()), ErrorCode::LOCKED) << "and once more";
        const pid_t child = fork();
        if (child == 0) {
            int other = open(path_.c_str(), O_RDWR);
            _exit(fcntl(other, F_SETLK, &lock) == 0 ? 1 : 0);
        }
        int status = 1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0) << "the lock is gone";
        close(fd);
        DirectFile::Open(path_, OpenMode());
    }
}

// A query reads hundreds of small files: none of them needs a second descriptor, or a ring.
TEST_F(DirectFileTest, ASmallFileIsReadThroughOneDescriptor) {
    const auto lowest_free = [] {
        const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        close(fd);
        return fd;
    };
    for (const uint64_t size : {4 * MIB, 4 * MIB + 1}) {
        const std::string content(size, 'x');
        std::ofstream(path_, std::ios::binary) << content;
        auto file = DirectFile::Open(path_, OpenMode());
        const int before = lowest_free();
        std::string found(256 * KIB, '?');
        EXPECT_EQ(file->Read(&found[0], found.size(), 64 * KIB), found.size());
        EXPECT_TRUE(found == content.substr(0, found.size()));
        EXPECT_EQ(lowest_free() == before, size <= 4 * MIB) << size;
        EXPECT_EQ(file->KernelReadsAhead(), size <= 4 * MIB) << size;
    }
}

TEST_F(DirectFileTest, OnlyRegularFiles) {
    path_ = directory_;
    EXPECT_EQ(CodeOf(OpenMode()), ErrorCode::INVALID);
    path_ = "/dev/null";
    EXPECT_EQ(CodeOf(OpenMode()), ErrorCode::INVALID);
}

TEST_F(DirectFileTest, WhatWasReadAMomentAgoIsNeverOlderThanTheFile) {
    constexpr uint64_t BLOCK = 256 * KIB, FIRST = 12 * KIB;
    OpenMode options = Writing(FileKind::DATABASE);
    options.lock = OpenMode::Lock::EXCLUSIVE;
    auto file = DirectFile::Open(path_, options);
    std::string expected(FIRST + 4 * BLOCK, 'a');
    file->Write(expected.data(), expected.size(), 0);
    auto check = [&](const char *after) {
        for (int again = 0; again < 3; again++) {
            std::string block(BLOCK, '?');
            EXPECT_EQ(file->Read(block.data(), BLOCK, FIRST + BLOCK), BLOCK);
            EXPECT_EQ(block == expected.substr(FIRST + BLOCK, BLOCK), true) << after << ", read " << again;
        }
    };
    auto write = [&](uint64_t offset, uint64_t length, char what) {
        expected.replace(offset, length, length, what);
        file->Write(expected.data() + offset, length, offset);
    };
    check("the first write");
    write(FIRST + BLOCK, BLOCK, 'b');
    check("a write of whole pages");
    write(FIRST + BLOCK + 1000, 100, 'c');
    check("a write past BlockIo");
    write(FIRST + BLOCK + 8000, 8000, 'd');
    check("a write both ways");
    ASSERT_TRUE(file->Deallocate(FIRST + BLOCK + 64 * KIB, 64 * KIB));
    expected.replace(FIRST + BLOCK + 64 * KIB, 64 * KIB, 64 * KIB, '\0');
    check("a deallocation");
    file->Truncate(FIRST + BLOCK);
    file->Write(expected.data() + FIRST + 3 * BLOCK, BLOCK, FIRST + 3 * BLOCK);
    expected.replace(FIRST + BLOCK, 2 * BLOCK, 2 * BLOCK, '\0');
    check("a truncation");
}

TEST_F(DirectFileTest, AWriteThatFailsHalfwayLeavesNothingOlderInMemory) {
    constexpr uint64_t BLOCK = 256 * KIB, WRITTEN = 200;
    OpenMode options = Writing(FileKind::DATABASE);
    options.lock = OpenMode::Lock::EXCLUSIVE;
    auto file = DirectFile::Open(path_, options);
    std::string expected(2 * BLOCK, 'a'), block(BLOCK, '?');
    file->Write(expected.data(), expected.size(), 0);
    for (int again = 0; again < 3; again++) {
        file->Read(block.data(), BLOCK, BLOCK);
    }
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{BLOCK + 1000 + WRITTEN, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expected.replace(BLOCK + 1000, WRITTEN, WRITTEN, 'b');
    EXPECT_THROW(file->Write(std::string(2 * WRITTEN, 'b').data(), 2 * WRITTEN, BLOCK + 1000), Error);
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(file->Read(block.data(), BLOCK, BLOCK), BLOCK);
    EXPECT_EQ(block == expected.substr(BLOCK), true);
}

//! Puts one end of a pipe, which refuses everything at an
//! offset, in the place of a file's buffered descriptors.
void BreakBuffered(const std::string &path) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    int broken = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char name[4096] = {};
        const ssize_t length =
            readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof(name) - 1);
        if (length > 0 && path == name && (fcntl(fd, F_GETFL) & O_DIRECT) == 0) {
            ASSERT_EQ(dup2(ends[1], fd), fd);
            broken++;
        }
    }
    EXPECT_GT(broken, 0);
    close(ends[0]);
    close(ends[1]);
}

TEST_F(DirectFileTest, WhatFailsPastTheQueuesIsCountedToo) {
    auto file = DirectFile::Open(path_, Writing(FileKind::WAL));
    const auto stats = StatsFor("file:" + path_, path_);
    char data[100] = {};
    file->Write(data, sizeof data, 0);
    EXPECT_EQ(file->Read(data, sizeof data, 0), sizeof data);
    file->Sync();
    for (const IoOperation operation : {IoOperation::READ, IoOperation::WRITE, IoOperation::FLUSH}) {
        EXPECT_EQ(stats->Snapshot(operation).requests, 1u) << IoOperationName(operation);
        EXPECT_EQ(stats->Snapshot(operation).commands, 1u) << IoOperationName(operation);
        EXPECT_EQ(stats->Snapshot(operation).errors, 0u) << IoOperationName(operation);
    }
    BreakBuffered(path_);
    EXPECT_THROW(file->Write(data, sizeof data, 0), Error);
    EXPECT_THROW(file->Read(data, sizeof data, 0), Error);
    EXPECT_FALSE(file->Deallocate(0, 4096));
    EXPECT_THROW(file->Sync(), Error);
    for (const IoOperation operation :
         {IoOperation::READ, IoOperation::WRITE, IoOperation::FLUSH, IoOperation::DEALLOCATE}) {
        EXPECT_EQ(stats->Snapshot(operation).errors, 1u) << IoOperationName(operation);
    }
    EXPECT_EQ(stats->Snapshot(IoOperation::WRITE).bytes, 100u) << "what failed moved nothing";
    try {
        file->Write(data, sizeof data, 0);
        ADD_FAILURE() << "a failed flush is final";
    } catch (const Error &error) {
        EXPECT_EQ(error.Code(), ErrorCode::POISONED);
    }
}

TEST_F(DirectFileTest, ANewNameIsMadeDurableWithoutAnotherDescriptor) {
    auto file = DirectFile::Open(path_, Writing(FileKind::WAL));
    file->Write("abc", 3, 0);
    {
        const DescriptorLimit none(3);
        file->Sync();
    }
    file->Write("def", 3, 3);
    EXPECT_EQ(Contents(), "abcdef");
}

// The file, and its directory: without the second its name could not be made durable.
TEST_F(DirectFileTest, WithoutADescriptorNoFileIsMade) {
    for (const bool may_have_one : {false, true}) {
        const int next = dup(STDERR_FILENO);
        close(next);
        const DescriptorLimit few(static_cast<rlim_t>(next) + (may_have_one ? 1 : 0));
        try {
            DirectFile::Open(path_, Writing(FileKind::WAL));
            ADD_FAILURE() << "there was no descriptor for it";
        } catch (const Error &error) {
            EXPECT_EQ(error.Code(), ErrorCode::DESCRIPTORS) << error.what();
            EXPECT_NE(std::string(error.what()).find("ulimit -n"), std::string::npos) << error.what();
        }
        EXPECT_NE(access(path_.c_str(), F_OK), 0);
    }
}

} // namespace
} // namespace rawduck
