//! Readers beside the writer: each locks a byte of its own, far behind all data (of a stripe: in each member), for as long as
//! it may read. Whoever writes
//! keeps for it what it reads, and gives that up when nobody has the byte any more.
//!
//! As those of TargetLock these are locks of open file descriptions: a process that is killed keeps its lock until its last
//! request is done. Of a block device the byte is locked in its attribute in /sys, too, which all of its nodes share, and of a
//! loop device in what it lies over, where its users meet those of other devices over the same bytes.
#pragma once

#include "target/system/file_descriptor.hpp"
#include "target/target.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace rawduck {

//! Where the bytes of a target's readers are locked. Thread-safe.
class ReaderBytes {
  public:
    //! Throws Error UNSUPPORTED where a target has no node, so no other process reaches it, or as OpenTarget.
    explicit ReaderBytes(const Target &target);

    //! Whether somebody has it, or that cannot be found out.
    bool IsLocked(uint64_t number) const;
    bool AnyLocked() const;
    //! Of the target itself, or the first of its members, open for reading.
    int Descriptor() const { return nodes_.front().fd.Get(); }

    static constexpr uint64_t COUNT = uint64_t(1) << 48;
    //! Locked by readers who have no writer to ask, while they have the volume to make a snapshot: for a moment.
    static constexpr uint64_t BEGINNING = COUNT;
    //! Locked by writers who wait for those: no reader begins meanwhile.
    static constexpr uint64_t WAITING = COUNT + 1;
    //! Locked by those who mount the volume, with a shared lock: they may be about to write.
    static constexpr uint64_t MOUNTING = COUNT + 2;
    //! From here on readers wait for each other: who has the lowest byte begins. Not a bound on how many: their bytes are times.
    static constexpr uint64_t QUEUE = COUNT + 3;
    static constexpr uint64_t QUEUE_BYTES = uint64_t(1) << 50;

    //! The lowest of [begin, end) that somebody has; nothing, too, where that cannot be found out.
    std::optional<uint64_t> LowestLocked(uint64_t begin, uint64_t end) const;

  private:
    friend class ReaderLock;
    static_assert(MOUNTING == WAITING + 1, "one look at both");
    struct Node {
        FileDescriptor fd;
        uint64_t begin; //!< where its bytes begin, which have their numbers from there on
    };
    void Add(const Target &part);
    void AddBackings(dev_t number, int fd);
    bool IsLocked(uint64_t first, uint64_t count) const;

    std::vector<Node> nodes_; //!< of each member; the first is a block device, or a file
};

//! Thread-safe. A forked child does not have it.
class ReaderLock {
  public:
    //! Locks a byte that nobody has. Throws as ReaderBytes, or Error LOCKED where somebody has locked the whole target, or IO.
    explicit ReaderLock(const Target &target);
    //! Locks this one, which others may have, too.
    ReaderLock(const Target &target, uint64_t number);
    ~ReaderLock();
    ReaderLock(const ReaderLock &) = delete;
    ReaderLock &operator=(const ReaderLock &) = delete;

    uint64_t Number() const { return number_; }
    //! Whether a writer waits for readers to let go of the volume.
    bool WriterWaits() const { return bytes_.IsLocked(ReaderBytes::WAITING); }
    //! The same, or somebody who may become one mounts the volume.
    bool WriterMayCome() const { return bytes_.IsLocked(ReaderBytes::WAITING, 2); }
    const ReaderBytes &Bytes() const { return bytes_; }
    int Descriptor() const { return bytes_.Descriptor(); }

  private:
    void Lock(const Target &target);
    void Release() noexcept;

    ReaderBytes bytes_;
    uint64_t number_ = 0;
    const uint64_t fork_generation_;
};

//! This byte, where it can be locked: it tells readers something that they can do without.
std::unique_ptr<ReaderLock> TryReaderLock(const Target &target, uint64_t number) noexcept;

//! Runs `attempt`, which takes a lock on the target, again for a while when it throws LOCKED because readers are beginning.
void WaitForBeginningReaders(const Target &target, const std::function<void()> &attempt);

} // namespace rawduck
