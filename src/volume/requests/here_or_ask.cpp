#include "volume/requests/here_or_ask.hpp"

#include "common/clock.hpp"
#include "common/error.hpp"
#include "io/resolve_volume.hpp"
#include "target/open_target.hpp"
#include "volume/names/snapshot_name.hpp"
#include "volume/registry.hpp"

#include <cerrno>
#include <chrono>
#include <ctime>
#include <fcntl.h>

namespace rawduck {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

//! Nobody can be asked between a writer's lock and its socket, and between the end of the one and of the other; and who reads
//! has it for a moment. Whoever has it for longer than this stays.
constexpr milliseconds HOLDER_TIME{1000};
//! However often another one has it: so many requests cannot be on their way.
constexpr milliseconds MOST_TIME{20000};
constexpr milliseconds PAUSE_LEAST{2}, PAUSE_MOST{20};
//! After that a signal to this thread ends the attempts: what it means is often found out only when this returns.
constexpr milliseconds SIGNAL_TIME{500};

//! How long a lock of somebody else is waited for who cannot be asked.
class Patience {
  public:
    Patience(const Target &target, const Interrupted &interrupted)
        : target_(target), interrupted_(interrupted) {}

    //! Sleeps a little. False when whoever has the lock stays.
    bool Wait(const std::string &holder) {
        const auto now = steady_clock::now();
        if (holder != holder_) {
            holder_ = holder;
            since_ = now;
        }
        if (now >= since_ + HOLDER_TIME || now >= begin_ + MOST_TIME) {
            return false;
        }
        const timespec pause{0, std::chrono::nanoseconds(pause_).count()};
        signalled_ = (nanosleep(&pause, nullptr) != 0 && errno == EINTR) || signalled_;
        pause_ = std::min(2 * pause_, PAUSE_MOST);
        if ((interrupted_ && interrupted_()) || (signalled_ && steady_clock::now() >= begin_ + SIGNAL_TIME)) {
            throw Error(ErrorCode::INTERRUPTED,
                        target_.name + ": interrupted while the lock on the volume was waited for");
        }
        return true;
    }

  private:
    const Target &target_;
    const Interrupted &interrupted_;
    const steady_clock::time_point begin_ = steady_clock::now();
    std::string holder_;
    steady_clock::time_point since_ = begin_;
    milliseconds pause_ = PAUSE_LEAST;
    bool signalled_ = false;
};

//! Something on it is open in this process, so nobody else is in the way of what is done here.
bool IsUsedHere(const Target &target) {
    const VolumePin mounted = MountedVolume(target.identity);
    return mounted && !mounted->Idle();
}

//! A request whose result is known again when nobody has answered it.
class Errand {
  public:
    Errand(const Target &target, WriterRequest request, const MountOptions &options)
        : target_(target), request_(std::move(request)), options_(options) {
        if (Makes()) {
            request_.number = static_cast<uint64_t>(NowUs());
        }
    }

    //! False when nobody is there.
    bool Ask() {
        const std::optional<bool> done = IsDone();
        if (!done || *done) {
            return done.has_value();
        }
        try {
            std::optional<std::string> given = rawduck::Ask(target_, request_, options_.interrupted);
            answer_ = given ? std::move(*given) : "";
            return given.has_value();
        } catch (const Unanswered &error) {
            left_open_ = left_open_ || error.reason != Unanswered::Reason::NOT_ASKED;
            throw;
        }
    }
    void DoHere() {
        VolumePin volume =
            PinVolume(target_.name, options_); // given up where it fails: others may want it, too
        if (!left_open_ || !IsDoneOn(*volume)) {
            answer_ = volume->Answer(request_);
        }
        volume_ = std::move(volume);
    }
    const std::string &Answer() const { return answer_; }
    const VolumePin &Mounted() const { return volume_; }

  private:
    bool Makes() const {
        return request_.kind == WriterRequest::Kind::SNAPSHOT || request_.kind == WriterRequest::Kind::CLONE;
    }
    //! The name by which it is seen whether it is done.
    std::string Witness() const {
        switch (request_.kind) {
        case WriterRequest::Kind::SNAPSHOT:
            return SnapshotFileName(request_.subject, request_.argument);
        case WriterRequest::Kind::CLONE:
        case WriterRequest::Kind::RENAME:
            return request_.argument;
        default:
            return request_.subject;
        }
    }
    WriterRequest Question(const std::string &name) const {
        return {WriterRequest::Kind::IDENTIFY, 0, name, ""};
    }
    bool Tells(const std::string &now) const {
        if (Makes()) { // it says of what it made that it was made when this was asked for
            const std::string ending = " " + std::to_string(request_.number);
            return now.size() > ending.size() && now.substr(now.size() - ending.size()) == ending;
        }
        return !before_.empty() && (now == before_) == (request_.kind == WriterRequest::Kind::RENAME);
    }
    bool IsDoneOn(Volume &volume) const {
        return ChangesVolume(request_.kind) && Tells(volume.Answer(Question(Witness())));
    }
    //! Which file it is about, before anybody is asked to change that; afterwards, whether somebody has done it. Empty when
    //! nobody is there.
    std::optional<bool> IsDone() {
        if (!ChangesVolume(request_.kind) || (Makes() && !left_open_)) {
            return false;
        }
        const std::string name = left_open_ ? Witness() : request_.subject;
        const std::optional<std::string> found = rawduck::Ask(target_, Question(name), options_.interrupted);
        if (found && !left_open_) {
            before_ = *found;
            return false;
        }
        return found ? std::optional<bool>(Tells(*found)) : std::nullopt;
    }

    const Target &target_;
    WriterRequest request_;
    const MountOptions &options_;
    std::string answer_;
    VolumePin volume_;       //!< where it was done here
    std::string before_;     //!< the file that it is about, as IDENTIFY says
    bool left_open_ = false; //!< somebody was asked, and it is not known whether it has done it
};

} // namespace

std::optional<std::string> Ask(const Target &target, const WriterRequest &request,
                               const Interrupted &interrupted) {
    if (!HasNode(target.kind)) {
        return std::nullopt;
    }
    const FileDescriptor node(
        OpenTarget(BlockDeviceOf(target), ChangesVolume(request.kind) ? O_RDWR : O_RDONLY).Release(),
        FileDescriptor::Closing::KEEPS_POSIX_LOCKS);
    std::optional<WriterAnswer> answer = AskWriter(target, node.Get(), request, interrupted);
    return answer ? std::optional<std::string>(std::move(answer->text)) : std::nullopt;
}

void AskOrDoHere(const Target &target, const Interrupted &interrupted, const std::function<bool()> &ask,
                 const std::function<void()> &here) {
    if (!HasNode(target.kind)) {
        return here();
    }
    Patience patience(target, interrupted);
    for (;;) {
        std::optional<Unanswered> unanswered;
        bool used_here = IsUsedHere(target);
        try {
            if (!used_here && ask()) {
                return;
            }
        } catch (const Unanswered &error) {
            unanswered.emplace(error);
        }
        try {
            return here();
        } catch (const Error &error) {
            used_here = used_here || IsUsedHere(target);
            if (error.Code() != ErrorCode::LOCKED || used_here) {
                throw;
            }
            const bool asks_again = !unanswered || unanswered->reason == Unanswered::Reason::ENDED;
            if (!asks_again || !patience.Wait(error.what())) {
                if (unanswered) {
                    throw Unanswered(*unanswered);
                }
                throw;
            }
        }
    }
}

std::string DoHereOrAsk(const std::string &target_name, const WriterRequest &request,
                        const MountOptions &options, VolumePin *mounted) {
    const Target target = ResolveVolume(target_name);
    Errand errand(target, request, options);
    AskOrDoHere(target, options.interrupted, [&] { return errand.Ask(); }, [&] { errand.DoHere(); });
    if (mounted) {
        *mounted = errand.Mounted();
    }
    return errand.Answer();
}

std::vector<std::string> NamesIn(const std::string &answer) {
    std::vector<std::string> names;
    for (size_t at = 0, end; (end = answer.find('\0', at)) != std::string::npos; at = end + 1) {
        names.push_back(answer.substr(at, end - at));
    }
    return names;
}

} // namespace rawduck
