//! What a mounted volume consists of. Private to src/volume.
#pragma once

#include "common/error.hpp"
#include "target/lock/target_lock.hpp"
#include "volume/file/file.hpp"
#include "volume/mount/mounted_metadata.hpp"
#include "volume/mount/options.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/readers/reader_image.hpp"
#include "volume/readers/reader_service.hpp"

#include <atomic>
#include <map>
#include <set>
#include <shared_mutex>

namespace rawduck {

class VolumeState {
  public:
    //! `lock`: null when the files are those of a reader beside the writer, of which `reader` then keeps what it reads.
    VolumeState(const Target &target, std::unique_ptr<TargetLock> lock, std::unique_ptr<BlockIo> io,
                MountedMetadata mounted, const MountOptions &options,
                std::shared_ptr<const void> reader = nullptr);
    ~VolumeState();

    //! Whether to wait for readers who have the volume for a moment. One of those does not wait for itself.
    enum class Patience { WAITS, NONE };
    //! Takes the exclusive lock for a writer; every call is paired with EndWrite. Throws Error LOCKED,
    //! PERMISSION, READ_ONLY or POISONED.
    void BeginWrite(Patience patience = Patience::WAITS);
    //! The same, without waiting, where the lock is exclusive already. False when it is not, or nothing can be written.
    bool BeginWriteBesideOthers();
    bool IsWriter() const {
        return lock && lock->Current() == TargetLock::Mode::EXCLUSIVE;
    } //!< under access_mutex
    //! Makes the shared lock exclusive. Throws LOCKED when the state in memory is outdated.
    void BecomeWriter(Patience patience);
    //! When the last writer ends, commits everything that is queued and makes the lock shared, so that other
    //! processes can read.
    void EndWrite();
    bool LastWriterLeaves() const;
    bool HasTemporaryFiles() const;

    using Names = std::map<std::string, std::shared_ptr<File>>;
    //! Without a lock. Does what may fail for want of space, and then does not change anything; if it does, makes room
    //! and does it again.
    void WithRoom(const std::function<void()> &action);
    //! What follows, up to the data members, requires names_mutex. Null when there is no such file.
    std::shared_ptr<File> Find(const std::string &name) const;
    [[noreturn]] void ThrowNoFile(const std::string &name) const;
    //! Throws Error CORRUPT for a file of which metadata cannot be read.
    void RequireReadable(const std::string &name) const;
    bool HasChildren(const std::string &directory) const;
    void CheckCreatable(const std::string &name) const;
    //! Of a file that is there: whoever misspells it is not to have a file of his own with that name, and without a word.
    void RequireNoNameOfSnapshot(const std::string &name) const;
    std::shared_ptr<File> Create(const std::string &name, FileKind kind);
    //! Throws READ_ONLY for a file of a snapshot; `what` was to be done, such as "written to".
    void RequireNoSnapshot(const File &file, const char *what) const;
    //! Throws READ_ONLY for what is kept of a receive that was cut short: who goes on with it relies on what it has.
    void RequireNotReceiving(const std::string &name) const;
    //! A file that is to be made with the contents of another.
    struct Copy {
        std::shared_ptr<File> source;
        std::string name;
        CloneKind kind = CloneKind::WRITABLE;
        int64_t created_us = 0; //!< 0: now
    };
    // Without a lock, durable on return, as Volume::Snapshot, Clone, TakeReceived and DropSnapshot.
    //! `created_us`: when what is made is said to be made; 0: now.
    void MakeCopies(const std::string &from, const std::string &to, CloneKind kind, int64_t created_us = 0,
                    Patience patience = Patience::WAITS);
    //! `own`: what the caller has locked.
    void TakeReceived(const std::string &received, const std::string &to, const ReceivedSnapshot &snapshot,
                      const std::vector<const File *> &own);
    void DropSnapshot(const std::string &name);
    //! As Volume::BeginReader.
    ReaderImage BeginReader(const std::string &file, uint64_t number);
    //! As Volume::ImageOf.
    ReaderImage ImageOf(const std::string &source, const std::string &name) const;
    void ServeReaders();
    //! The superblock that was found at mount, with the size that the volume has now.
    TreeSuperblock Layout() const;
    //! For the service of readers. Throws what the reader is to be told.
    std::string Answer(const WriterRequest &request);
    //! Drops what was kept for readers that have ended, where this process is writing.
    void DropLeftReaders() noexcept;
    //! Makes all of them in one record, which first removes what is `replaced`; when it throws before its end, nothing has
    //! changed. Returns the ticket to commit. Does I/O.
    uint64_t QueueClones(const std::vector<Copy> &copies,
                         const std::vector<std::shared_ptr<File>> &replaced = {});
    //! Removes all of them in one record; returns the ticket to commit, 0 where the log knows of none.
    uint64_t QueueRemoveTogether(const std::vector<std::shared_ptr<File>> &files);
    //! Calls `queue`, which tells the log that the file is gone; when it throws, nothing has changed.
    void Retire(const std::shared_ptr<File> &file, const std::function<void(bool published)> &queue);
    //! Whoever has a file locked relies on its being there, as it is: a database that is attached. Throws
    //! LOCKED; `what` was to be done to it, such as "remove".
    void RequireUnlocked(const File &file, const char *what) const;
    //! For a file whose removal was just queued: its space is freed with the next record if nobody has it
    //! open, otherwise when it is closed last. Returns the ticket of that record.
    uint64_t QueueFreed(File &file);
    //! Called when space is scarce, without names_mutex, which it takes.
    void ReclaimReservations();
    //! Removes a file or a directory entry; returns the ticket
    //! to commit, 0 for one that the log does not know of.
    uint64_t QueueRemove(Names::iterator entry);
    //! What Remove refuses to remove.
    void RequireRemovable(const File &file) const;
    //! Gives a published file another name, replacing the file that has it; returns the ticket to commit.
    uint64_t QueueMove(const std::shared_ptr<File> &file, const std::string &from, const std::string &to);
    //! A published file that is to have another name.
    struct NewName {
        std::shared_ptr<File> file;
        std::string name;
    };
    //! Gives all of them their names in one record, which first removes what is `replaced`: whatever has one of these names.
    //! When it throws before its end, nothing has changed. Returns the ticket to commit.
    uint64_t QueueMoveTogether(const std::vector<NewName> &moved,
                               const std::vector<std::shared_ptr<File>> &replaced);

    const std::shared_ptr<const void> reader; //!< the first member: it goes when nothing is read any more
    const Target target;
    std::unique_ptr<TargetLock> lock;
    std::unique_ptr<BlockIo> io;
    const TreeSuperblock superblock; //!< as found at mount
    //! Of the volume, which may have grown since.
    std::atomic<uint64_t> capacity_units{superblock.capacity_units};
    const std::unique_ptr<MetadataTrees> trees;
    const std::string warning;
    const std::vector<Extent> overwritten; //!< see LoadedVolume
    std::map<std::string, std::string>
        unreadable; //!< name -> why; constant after the mount, and then nobody writes
    Space space;
    MetadataRoom room;
    MetadataLog log;
    SpillBuffer spill;
    Deallocator deallocator; //!< after what it uses
    FileContext context;
    std::string queue_mode;
    uint32_t queue_depth = 0;
    double mount_ms = 0;

    std::mutex growth_mutex; //!< one that grows at a time; held during I/O, and the first of a volume's locks

    //! Guards the names, the members of File that say so, and what follows up to access_mutex. Taken under
    //! access_mutex; under it the locks of files. I/O is done under it only by QueueRemove and QueueMove,
    //! which finish the commit of a file that is removed or replaced and wait for spilled blocks in flight.
    mutable std::shared_mutex names_mutex;
    Names names;
    std::set<std::shared_ptr<File>> removed_files; //!< that somebody has open
    uint64_t next_file_id = 1;
    uint64_t open_handles = 0;
    uint64_t temp_files = 0;

    //! Guards what follows and the mode of `lock`. Before all locks but growth_mutex: names_mutex and the log's may
    //! be taken under it. Held during I/O: BecomeWriter reads the log, EndWrite commits.
    mutable std::mutex access_mutex;
    uint64_t writers = 0;

    //! Where readers of other processes find this one. Null when none can reach the target, and for a reader itself.
    std::unique_ptr<ReaderBytes> reader_bytes;
    std::function<std::string(const WriterRequest &)>
        answer_others;                             //!< Volume::Answer; set before the service starts
    std::unique_ptr<ReaderService> reader_service; //!< the last member: its thread uses the others
};

//! Pairs BeginWrite with EndWrite. EndWrite can fail (it commits); a scope that ends normally calls Finish.
class WriteScope {
  public:
    explicit WriteScope(VolumeState &state, VolumeState::Patience patience = VolumeState::Patience::WAITS)
        : state_(state) {
        state_.BeginWrite(patience);
    }
    //! Of a write that has begun.
    enum class Begun { YES };
    WriteScope(VolumeState &state, Begun) : state_(state) {}
    ~WriteScope() {
        if (!finished_) {
            try {
                state_.EndWrite();
            } catch (const std::exception &) {
                // An exception is on its way already, and what the log could not write it remembers.
            }
        }
    }
    void Finish() {
        finished_ = true;
        state_.EndWrite();
    }
    //! The handle that was opened carries on as a writer.
    void Keep() { finished_ = true; }

  private:
    VolumeState &state_;
    bool finished_ = false;
};

} // namespace rawduck
