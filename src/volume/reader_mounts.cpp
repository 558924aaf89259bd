#include "volume/reader_mounts.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"
#include "io/resolve_volume.hpp"
#include "target/lock/reader_lock.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/readers/reader_channel.hpp"

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>

namespace rawduck {

namespace {

//! Between a writer's lock and its socket, and between the end of the one and of the other, nobody can be asked.
constexpr std::chrono::milliseconds WRITER_TIME{2000}, WRITER_INTERVAL{5};
//! Who has the shared lock may be about to write, and waits until it can be made exclusive. So for this time a reader lets go
//! of the volume and asks again, before it settles for keeping writers out.
constexpr std::chrono::milliseconds UNSETTLED_TIME{300};
//! A reader waits so long for the one that is to begin before it, and for writers that wait. It does not count for the times above.
constexpr std::chrono::milliseconds TURN_TIME{5000};

//! DuckDB 2.0.0 opens its main database twice, outside any query: first without a lock, to look what it is, and then it uses the headers that it
//! has read there. Both have to be of one instant, so what was looked at stays until it is opened with a lock; for so long at
//! most.
constexpr std::chrono::seconds LINGERING_TIME{10};

using Clock = std::chrono::steady_clock;
using Key = std::tuple<const void *, std::string, std::string>; //!< owner, identity of the target, file

struct ReaderMounts {
    struct Entry {
        std::weak_ptr<Volume> volume;
        std::shared_ptr<Volume> lingers; //!< the same, or null
        Clock::time_point until;         //!< when that ends
        OwnerIsGone owner_is_gone;       //!< of what lingers: another owner may have the same address by now
    };
    const uint64_t fork_generation = ForkGeneration();
    std::mutex mutex; //!< guards what follows; no other lock is taken under it
    std::map<Key, Entry> entries;
    bool ends_lingering = false; //!< there is a thread that does
};

//! Never destroyed, and begun anew in a forked child, as the registry of volumes is.
ReaderMounts &GetReaderMounts() {
    static std::atomic<ReaderMounts *> current{new ReaderMounts()};
    ReaderMounts *mounts = current.load(std::memory_order_acquire);
    if (mounts->fork_generation != ForkGeneration()) {
        ReaderMounts *fresh = new ReaderMounts();
        if (current.compare_exchange_strong(mounts, fresh)) {
            return *fresh;
        }
        delete fresh;
    }
    return *mounts;
}

//! What a reader has been given, and what keeps it.
struct View {
    ReaderImage image;
    std::shared_ptr<const void> keeps;
};

//! What keeps a snapshot. The writer looks whether the lock is gone when the connection ends, or, in this process, is
//! asked to.
struct Kept {
    Kept(ReaderConnection connection_p, std::unique_ptr<ReaderLock> lock_p, std::string identity_p)
        : connection(std::move(connection_p)), lock(std::move(lock_p)), identity(std::move(identity_p)) {}
    ~Kept() {
        lock.reset();
        if (const VolumePin here = MountedVolume(identity)) {
            here->DropLeftReaders();
        }
    }
    ReaderConnection connection;
    std::unique_ptr<ReaderLock> lock;
    const std::string identity; //!< of the target
};

//! The files are open, locked against writers of this process, on a volume that is locked against others.
View ViewOfLocked(const VolumePin &volume, const std::string &file) {
    const auto files = std::make_shared<std::vector<std::unique_ptr<OpenFile>>>();
    OpenMode mode;
    mode.lock = OpenMode::Lock::SHARED;
    mode.in_place = true;
    const std::string source = SourceOfReader(file);
    files->push_back(OpenPinned(volume, source, mode));
    for (const std::string &log : LogNamesOf(source)) {
        if (volume->FileExists(log)) {
            files->push_back(OpenPinned(volume, log, mode));
        }
    }
    return {volume->ImageOf(source, file), files};
}

//! On a volume that this process has mounted. Unless it `settles`, throws LOCKED where others have it, too.
View ViewOfMounted(const Target &target, const VolumePin &volume, std::unique_ptr<ReaderLock> &lock,
                   const std::string &file, bool settles) {
    try {
        ReaderImage image = volume->BeginReader(file, lock->Number());
        return {std::move(image),
                std::make_shared<Kept>(ReaderConnection(), std::move(lock), target.identity)};
    } catch (const Error &error) {
        const bool may_not_write = (error.Code() == ErrorCode::LOCKED && settles) ||
                                   error.Code() == ErrorCode::PERMISSION ||
                                   error.Code() == ErrorCode::POISONED || error.Code() == ErrorCode::NO_SPACE;
        if (!may_not_write) {
            throw;
        }
        try {
            return ViewOfLocked(volume, file);
        } catch (const Error &locked) {
            if (locked.Code() != ErrorCode::LOCKED) {
                throw;
            }
        }
        throw; // somebody is writing, so this is why there is no snapshot
    }
}

//! What was wrong with the writer, if nothing is found beside one.
struct Answers {
    std::string why_not =
        "Nobody answered a reader who asked it to keep what it reads. Asking needs rawduck of the "
        "same version there, in the same network namespace";
    bool writer_ended = false; //!< meanwhile, the last one that was asked
};

std::optional<View> ViewOfWriter(const Target &target, std::unique_ptr<ReaderLock> &lock,
                                 const std::string &file, const Interrupted &interrupted, Answers &answers) {
    std::optional<WriterAnswer> answer;
    try {
        answer = AskWriter(target, lock->Descriptor(), {WriterRequest::Kind::READ, lock->Number(), file, ""},
                           interrupted);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::LOCKED) {
            throw;
        }
        const auto *unanswered = dynamic_cast<const Unanswered *>(&error);
        answers.writer_ended = unanswered && unanswered->reason == Unanswered::Reason::ENDED;
        answers.why_not = error.what();
        // Of this number it may have made a snapshot before it ended, and that name is taken.
        lock = std::make_unique<ReaderLock>(target);
    }
    if (!answer) { // nobody is there, or has just ended, or may not write either
        return std::nullopt;
    }
    ReaderImage image = DecodeReaderImage(answer->text, target.name);
    return View{std::move(image),
                std::make_shared<Kept>(std::move(answer->connection), std::move(lock), target.identity)};
}

//! When a reader that has nobody to ask may begin: one after the other, in the order in which they came, and after writers that
//! wait. Two with the shared lock would both wait for the exclusive one.
class ReaderTurn {
  public:
    explicit ReaderTurn(const Target &target) : target_(target) { ToTheEnd(); }

    //! Behind all that wait.
    void ToTheEnd() {
        const auto now =
            std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch());
        place_.reset();
        place_ = std::make_unique<ReaderLock>(
            target_, ReaderBytes::QUEUE + static_cast<uint64_t>(now.count()) % ReaderBytes::QUEUE_BYTES);
    }

    //! Null where others go first, after a pause.
    std::unique_ptr<ReaderLock> TryBegin() {
        const auto now = Clock::now();
        const std::optional<uint64_t> first = place_->Bytes().LowestLocked(passed_, place_->Number());
        if (first && first != first_) {
            first_ = first;
            first_since_ = now;
        }
        if (first && now >= first_since_ + TURN_TIME) {
            passed_ = *first + 1; // it does not get on: it is stopped, perhaps
        } else if (!first) {
            writers_since_ = place_->WriterWaits() ? std::min(writers_since_, now) : Clock::time_point::max();
            if (now < writers_since_ || now - writers_since_ >= TURN_TIME) {
                return std::make_unique<ReaderLock>(target_, ReaderBytes::BEGINNING);
            }
        }
        std::this_thread::sleep_for(WRITER_INTERVAL);
        return nullptr;
    }

  private:
    const Target &target_;
    std::unique_ptr<ReaderLock> place_;
    uint64_t passed_ = ReaderBytes::QUEUE; //!< who is before it is not waited for any more
    std::optional<uint64_t> first_;
    Clock::time_point first_since_, writers_since_ = Clock::time_point::max();
};

//! The name may lead elsewhere than when the reader's lock was taken, and what is read would be protected there only.
VolumePin PinSame(const Target &target, const MountOptions &options) {
    VolumePin pinned = PinVolume(target.name, options);
    if (pinned.operator->() != MountedVolume(target.identity).operator->()) {
        throw Error(ErrorCode::NOT_FOUND, target.name +
                                              ": it has become another target while a reader was to "
                                              "begin; try again");
    }
    return pinned;
}

View FindView(const Target &target, const std::string &file, const MountOptions &options) {
    auto lock = std::make_unique<ReaderLock>(target);
    ReaderTurn turn(target);
    std::optional<Clock::time_point> first_refused, refused; // since when somebody has the volume for long
    Answers answers;
    for (;;) {
        if (const VolumePin mounted = MountedVolume(target.identity)) {
            return ViewOfMounted(target, mounted, lock, file, true);
        }
        answers.writer_ended = false;
        if (std::optional<View> view = ViewOfWriter(target, lock, file, options.interrupted, answers)) {
            return std::move(*view);
        }
        std::unique_ptr<ReaderLock> begins = turn.TryBegin();
        if (!begins) {
            if (options.interrupted && options.interrupted()) {
                throw Error(ErrorCode::INTERRUPTED,
                            target.name + ": interrupted while others had the volume open for a moment");
            }
            continue; // who went first can perhaps be asked
        }
        const bool settles = refused && Clock::now() >= *refused + UNSETTLED_TIME;
        try {
            MountOptions own = options;
            own.waits_for_readers = false; // a writer that has just begun can be asked
            return ViewOfMounted(target, PinSame(target, own), lock, file, settles);
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::LOCKED) {
                throw;
            }
            // Who is only about to write has it exclusively soon, and can be asked then.
            const auto now = Clock::now();
            first_refused = first_refused ? first_refused : now;
            const bool writers_come_and_go =
                (lock->WriterMayCome() || answers.writer_ended) && now < *first_refused + TURN_TIME;
            refused = refused && !writers_come_and_go ? refused : now;
            // One attempt alone may take that long.
            if (settles && now >= *refused + WRITER_TIME) {
                throw Error(ErrorCode::LOCKED, std::string(error.what()) + ". " + answers.why_not);
            }
        }
        begins.reset();
        turn.ToTheEnd();
        std::this_thread::sleep_for(WRITER_INTERVAL);
    }
}

//! Lets go of what has lingered long enough, until nothing lingers.
void EndLingering(ReaderMounts &mounts) {
    for (bool lingers = true; lingers;) {
        std::shared_ptr<Volume> ended; // given up without the mutex
        {
            std::lock_guard<std::mutex> guard(mounts.mutex);
            lingers = false;
            for (auto &[key, entry] : mounts.entries) {
                if (entry.lingers && entry.until <= Clock::now() && !ended) {
                    ended = std::move(entry.lingers);
                }
                lingers = lingers || entry.lingers || ended;
            }
            mounts.ends_lingering = lingers;
        }
        if (!ended && lingers) {
            std::this_thread::sleep_for(LINGERING_TIME / 20);
        }
    }
}

//! Under the mutex. Where no thread can be had nothing lingers.
void Linger(ReaderMounts &mounts, ReaderMounts::Entry &entry, const std::shared_ptr<Volume> &volume,
            const OwnerIsGone &owner_is_gone) {
    if (!mounts.ends_lingering) {
        try {
            std::thread([&mounts] { EndLingering(mounts); }).detach();
        } catch (const std::system_error &) {
            return;
        }
        mounts.ends_lingering = true;
    }
    entry.lingers = volume;
    entry.until = Clock::now() + LINGERING_TIME;
    entry.owner_is_gone = owner_is_gone;
}

bool IsDatabase(const Volume &volume, const std::string &file) {
    FileInfo info;
    return volume.Stat(file, info) && info.kind == FileKind::DATABASE;
}

//! The volume of this key, if there is one; otherwise `made`, if that is not null, which has the key then.
VolumePin PinKnown(ReaderMounts &mounts, const Key &key, PinUse use, const std::shared_ptr<Volume> &made,
                   const OwnerIsGone &owner_is_gone) {
    const bool lingers = made && use == PinUse::LOOK && IsDatabase(*made, std::get<2>(key));
    std::vector<std::shared_ptr<Volume>> lingered; // given up without the mutex
    std::lock_guard<std::mutex> guard(mounts.mutex);
    for (auto entry = mounts.entries.begin(); entry != mounts.entries.end();) {
        ReaderMounts::Entry &known = entry->second;
        const bool is_left = known.lingers && known.owner_is_gone && known.owner_is_gone();
        if (is_left) {
            lingered.push_back(std::move(known.lingers));
        }
        entry = is_left || known.volume.expired() ? mounts.entries.erase(entry) : std::next(entry);
    }
    auto found = mounts.entries.find(key);
    if (found == mounts.entries.end() && made) {
        found = mounts.entries.emplace(key, ReaderMounts::Entry{made, nullptr, {}, nullptr}).first;
    }
    std::shared_ptr<Volume> volume = found == mounts.entries.end() ? nullptr : found->second.volume.lock();
    if (!volume && made) { // that of the key has gone since
        found->second.volume = volume = made;
    }
    if (volume && use != PinUse::LOOK) {
        lingered.push_back(std::move(found->second.lingers));
    } else if (volume == made && lingers) {
        Linger(mounts, found->second, volume, owner_is_gone);
    }
    return VolumePin(volume);
}

} // namespace

VolumePin PinFor(const std::string &target_name, const std::string &path_file, const void *owner,
                 const MountOptions &options, PinUse use, const OwnerIsGone &owner_is_gone) {
    const std::string database = DatabaseOfLog(path_file);
    const std::string &file = database.empty() ? path_file : database;
    if (SplitSnapshotName(file).snapshot.empty()) {
        try {
            return PinVolume(target_name, options);
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::LOCKED || file.empty()) {
                throw;
            }
            throw Error(ErrorCode::LOCKED, std::string(error.what()) +
                                               ". Where another process writes to it, \"" + file + "@" +
                                               LATEST + "\" can be read meanwhile");
        }
    }
    const Target target = ResolveVolume(target_name, Headers::NOW);
    ReaderMounts &mounts = GetReaderMounts();
    const Key key(owner, target.identity, file);
    if (VolumePin found = PinKnown(mounts, key, use, nullptr, owner_is_gone)) {
        return found;
    }
    if (SourceOfReader(file) == file && (use != PinUse::BESIDE || !HasNode(target.kind))) {
        try {
            return PinVolume(target_name, options);
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::LOCKED || !HasNode(target.kind)) {
                throw;
            }
        }
    }
    View view = FindView(target, file, options);
    const auto made = Volume::MountReader(target, std::move(view.image), std::move(view.keeps), options,
                                          StatsFor(target.identity, target.name));
    return PinKnown(mounts, key, use, made, owner_is_gone);
}

} // namespace rawduck
