#include "target/lock/reader_lock.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"
#include "target/occupants/loop_device.hpp"
#include "target/open_target.hpp"
#include "target/stripe.hpp"
#include "target/system/locked_descriptors.hpp"
#include "target/system/sysfs.hpp"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <thread>

namespace rawduck {

namespace {

//! A reader has the volume for some milliseconds, on a busy drive for some hundred; no other begins meanwhile.
constexpr std::chrono::milliseconds BEGINNING_TIME{5000}, BEGINNING_PAUSE{300}, BEGINNING_INTERVAL{3};

constexpr int NUMBERS_TRIED = 16;

//! Behind READERS_BEGIN there is room for as many times the bytes of a target, and one more. A prime, so that where the parts
//! of a file begin, commonly at multiples of some power of two, they have different ones.
constexpr uint64_t PLACE_BYTES = uint64_t(1) << 51, PLACES = 2039;
static_assert(ReaderBytes::QUEUE + ReaderBytes::QUEUE_BYTES <= PLACE_BYTES);
static_assert(READERS_BEGIN + (PLACES + 1) * PLACE_BYTES < uint64_t(1) << 63, "as large as an offset can be");

//! Where, in a file or device, the bytes of a target begin that lies there from `start` on. Neighbours have others. One in 2039
//! has the same: it waits for readers that are not its own, and does not lose one.
uint64_t BytesBegin(uint64_t start) {
    return READERS_BEGIN + (start == 0 ? 0 : 1 + start / SYSFS_SECTOR_BYTES % PLACES) * PLACE_BYTES;
}

} // namespace

ReaderBytes::ReaderBytes(const Target &target) {
    if (!HasNode(target.kind)) {
        throw Error(ErrorCode::UNSUPPORTED,
                    target.name + ": no other process can reach it, so there are no readers beside a writer; "
                                  "attach the database itself, or a snapshot of it (nvme_snapshot)");
    }
    for (const Target &part : PartsOf(target)) {
        Add(part);
    }
}

void ReaderBytes::Add(const Target &part) {
    FileDescriptor node = OpenTarget(BlockDeviceOf(part), O_RDONLY);
    struct stat status;
    const int own = node.Get();
    const bool is_device = fstat(own, &status) == 0 && S_ISBLK(status.st_mode);
    nodes_.push_back(
        {FileDescriptor(node.Release(), FileDescriptor::Closing::KEEPS_POSIX_LOCKS), BytesBegin(0)});
    const std::string directory = is_device ? SysfsDirectory(status.st_rdev) : "";
    if (!directory.empty()) {
        FileDescriptor attribute(OpenAboveStreams((directory + "/dev").c_str(), O_RDONLY));
        if (attribute.IsOpen()) {
            nodes_.push_back({std::move(attribute), BytesBegin(0)});
        } else if (IsWantOfDescriptors(errno)) {
            ThrowOpenError(part.name, "open " + directory + "/dev for readers", errno);
        }
    }
    if (is_device) {
        AddBackings(status.st_rdev, own);
    }
}

// A loop device and its file are one volume under two names, whose users meet at the lowest, and so are two devices over the
// same part of a file.
void ReaderBytes::AddBackings(dev_t number, int fd) {
    uint64_t start = 0;
    for (auto below = BackingOf(number, fd); below; below = BackingOf(below->number, -1)) {
        start += below->range.start;
        int error_number = 0;
        if (!below->path.empty()) {
            FileDescriptor node = TryOpenTarget(ResolveTarget(below->path), O_RDONLY, error_number);
            if (node.IsOpen()) {
                nodes_.push_back({FileDescriptor(node.Release(), FileDescriptor::Closing::KEEPS_POSIX_LOCKS),
                                  BytesBegin(start)});
            }
        }
        if (below->number == 0) {
            return;
        }
    }
}

bool ReaderBytes::IsLocked(uint64_t first, uint64_t count) const {
    for (const Node &node : nodes_) {
        struct flock lock = {};
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        lock.l_start = static_cast<off_t>(node.begin + first);
        lock.l_len = static_cast<off_t>(count);
        if (fcntl(node.fd.Get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) {
            return true;
        }
    }
    return false;
}

bool ReaderBytes::IsLocked(uint64_t number) const {
    return IsLocked(number, 1);
}

bool ReaderBytes::AnyLocked() const {
    return IsLocked(0, COUNT + 1);
}

std::optional<uint64_t> ReaderBytes::LowestLocked(uint64_t begin, uint64_t end) const {
    std::optional<uint64_t> lowest;
    for (const Node &node : nodes_) {
        while (begin < end) {
            struct flock lock = {};
            lock.l_type = F_WRLCK;
            lock.l_whence = SEEK_SET;
            lock.l_start = static_cast<off_t>(node.begin + begin);
            lock.l_len = static_cast<off_t>(end - begin);
            if (fcntl(node.fd.Get(), F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK ||
                lock.l_start < static_cast<off_t>(node.begin + begin)) {
                break;
            }
            end = static_cast<uint64_t>(lock.l_start) - node.begin;
            lowest = end;
        }
    }
    return lowest;
}

// Two that choose the same number at the same moment would both have it; one in 2^48 does.
ReaderLock::ReaderLock(const Target &target) : bytes_(target), fork_generation_(ForkGeneration()) {
    std::random_device random;
    std::uniform_int_distribution<uint64_t> numbers(0, ReaderBytes::COUNT - 1);
    // Where none of some is free, somebody has locked all of the target.
    for (int i = 0; i < NUMBERS_TRIED && (i == 0 || bytes_.IsLocked(number_)); i++) {
        number_ = numbers(random);
    }
    Lock(target);
}

ReaderLock::ReaderLock(const Target &target, uint64_t number)
    : bytes_(target), number_(number), fork_generation_(ForkGeneration()) {
    Lock(target);
}

void ReaderLock::Lock(const Target &target) {
    for (const ReaderBytes::Node &node : bytes_.nodes_) {
        RegisterLocked(node.fd.Get());
        if (const int failed = TryLock(node.fd.Get(), F_RDLCK, {node.begin + number_, 1})) {
            Release();
            if (failed == EAGAIN || failed == EACCES) {
                throw Error(ErrorCode::LOCKED, target.name +
                                                   ": another program has locked all of it, so nobody can "
                                                   "read beside it; close it there");
            }
            throw Error(ErrorCode::IO,
                        target.name + ": cannot lock a byte for a reader: " + ErrnoText(failed));
        }
    }
}

ReaderLock::~ReaderLock() {
    if (fork_generation_ == ForkGeneration()) {
        Release();
    } else {
        for (ReaderBytes::Node &node :
             bytes_.nodes_) { // closed already, and the numbers may be something else's
            static_cast<void>(node.fd.Release());
        }
    }
}

// By name: a descriptor that was sent elsewhere would keep the lock after it is closed here.
void ReaderLock::Release() noexcept {
    for (const ReaderBytes::Node &node : bytes_.nodes_) {
        UnregisterLocked(node.fd.Get());
        TryLock(node.fd.Get(), F_UNLCK, {node.begin + number_, 1});
    }
}

std::unique_ptr<ReaderLock> TryReaderLock(const Target &target, uint64_t number) noexcept {
    try {
        return HasNode(target.kind) ? std::make_unique<ReaderLock>(target, number) : nullptr;
    } catch (
        const std::exception &) { // the node of readers cannot be opened, or somebody has locked all of it
        return nullptr;
    }
}

// Who has just ended may have been what stood in the way, so there is an attempt more when no reader is left. Between two
// attempts of the same reader its mark is not there.
void WaitForBeginningReaders(const Target &target, const std::function<void()> &attempt) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    auto seen = begin;
    std::optional<ReaderLock> waits;
    int looks_without = 0; // in a row: between the attempt and the look, one may end and another begin
    for (bool last = !HasNode(target.kind);;) {
        try {
            return attempt();
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::LOCKED || last || Clock::now() >= begin + BEGINNING_TIME) {
                throw;
            }
        }
        try {
            const ReaderBytes readers(target);
            looks_without = readers.AnyLocked() ? 0 : looks_without + 1;
            if (!waits) {
                waits.emplace(target, ReaderBytes::WAITING);
                seen = Clock::now(); // an attempt may have waited for longer than the pause
            } else if (readers.IsLocked(ReaderBytes::BEGINNING)) {
                seen = Clock::now();
            }
            last = looks_without == 2 || Clock::now() >= seen + BEGINNING_PAUSE;
        } catch (const Error &) { // the node of readers cannot be opened, or somebody has locked all of it
            last = true;          // the error of the attempt says more
        }
        std::this_thread::sleep_for(BEGINNING_INTERVAL);
    }
}

} // namespace rawduck
