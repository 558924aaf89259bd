#include "ceph/pushdown/scan/object_calls.hpp"

#include "ceph/protocol/bytes.hpp"
#include "ceph/rados/connection/rados_error.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace rawduck_ceph {

namespace {

//! How often a call is made that finds its OSD busy, before the object is read instead.
constexpr int ATTEMPTS_MAX = 300;
//! After so many answers that were too large, no more objects are asked.
constexpr size_t TOO_LARGE_MAX = 1;
constexpr std::chrono::milliseconds BUSY_PAUSE{2};
//! The pause grows with each attempt, up to so many times that.
constexpr int BUSY_PAUSES_MAX = 10;

std::string ErrnoReason(int code) {
    switch (-code) {
    case EOPNOTSUPP:
        return "the OSD has no object class rawduck";
    case EPERM:
    case EACCES:
        return "the user may not call the object class: it needs the capability osd 'allow rx'";
    case ENOENT:
        return "there is no such object";
    case ETIMEDOUT:
        return "the OSD did not answer in time";
    default:
        return ErrnoText(-code);
    }
}

} // namespace

ObjectCalls::ObjectCalls(std::vector<CallTarget> targets, const Request &request, const CallLimits &limits)
    : targets_(std::move(targets)), request_(EncodeRequest(request)), limits_(limits),
      attempts_(targets_.size()) {
    for (size_t i = 0; i < targets_.size(); i++) {
        waiting_[i] = Clock::time_point();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    Send(lock);
}

ObjectCalls::~ObjectCalls() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.wait(lock, [&] { return in_flight_ == 0; });
}

std::map<size_t, ObjectCalls::Clock::time_point>::iterator ObjectCalls::NextToSend() {
    const auto now = Clock::now();
    auto next = waiting_.begin();
    while (next != waiting_.end() && next->second > now) {
        ++next;
    }
    if (stopping_ || next == waiting_.end()) {
        return waiting_.end();
    }
    // Answers that wait to be fetched count too: they take memory. But what somebody waits for must go out
    // even when answers behind it fill the room.
    const bool room =
        in_flight_ + answers_.size() < (first_came_ ? limits_.in_flight_max : limits_.before_first_reply);
    return room || (in_flight_ == 0 && next->first < claimed_) ? next : waiting_.end();
}

void ObjectCalls::Send(std::unique_lock<std::mutex> &lock) {
    for (auto next = NextToSend(); next != waiting_.end(); next = NextToSend()) {
        const size_t number = next->first;
        PoolRates &rates = *targets_[number].feedback->rates;
        if (!rates.call_window.TryEnter(limits_.in_flight_max)) {
            return; // other scans are at it; whoever waits for this one tries again
        }
        waiting_.erase(next);
        attempts_[number]++;
        in_flight_++;
        lock.unlock();
        auto callback = [this, number](const ExecReply &reply) { Arrived(number, reply); };
        rates.calls.Started();
        try {
            targets_[number].pool->Exec(targets_[number].object, 0, "rawduck", "query", request_, callback);
        } catch (const Error &) {
            ExecReply failed;
            failed.code = -EIO;
            Arrived(number, failed);
        }
        lock.lock();
    }
}

void ObjectCalls::Arrived(size_t target, const ExecReply &reply) {
    CallAnswer answer = Examine(target, reply);
    PoolRates &rates = *targets_[target].feedback->rates;
    rates.calls.Ended(answer.reply.read_bytes, answer.reply.cpu_us);
    rates.call_window.Leave(answer.reply.status == ReplyStatus::BUSY);
    // Notified under the lock: whoever waits for the last one may be the destructor.
    std::lock_guard<std::mutex> lock(mutex_);
    in_flight_--;
    if (answer.reply.status == ReplyStatus::BUSY && attempts_[target] < ATTEMPTS_MAX) {
        waiting_[target] = Clock::now() + BUSY_PAUSE * std::min(attempts_[target], BUSY_PAUSES_MAX);
        changed_.notify_all();
        return;
    }
    too_large_ += answer.reply.status == ReplyStatus::TOO_LARGE ? 1 : 0;
    const bool asked_alone = !first_came_ && limits_.before_first_reply == 1;
    if (too_large_ > TOO_LARGE_MAX || (asked_alone && too_large_ > 0)) {
        GiveUp("not asked, because the answers about other objects are too large", nullptr);
    }
    if (answer.reply.status == ReplyStatus::CANNOT_READ) {
        GiveUp(answer.why, targets_[target].pool.get()); // nor can it read the others
    }
    first_came_ = true;
    answers_[target] = std::move(answer);
    changed_.notify_all();
}

void ObjectCalls::GiveUp(const std::string &why, const RadosPool *pool) {
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
        if (pool && targets_[entry->first].pool.get() != pool) {
            ++entry;
            continue;
        }
        answers_[entry->first].target = entry->first;
        answers_[entry->first].why = why;
        entry = waiting_.erase(entry);
    }
}

bool ObjectCalls::Claim(size_t &target) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (claimed_ == targets_.size()) {
        return false;
    }
    target = claimed_++;
    return true;
}

bool ObjectCalls::WaitFor(size_t target, uint32_t timeout_ms, CallAnswer &answer) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        Send(lock);
        auto found = answers_.find(target);
        if (found != answers_.end()) {
            answer = std::move(found->second);
            answers_.erase(found);
            Send(lock);
            return true;
        }
        // What found its OSD busy is sent again by whoever waits here.
        const auto wake = waiting_.empty() ? deadline : std::min(deadline, Clock::now() + BUSY_PAUSE);
        if (changed_.wait_until(lock, wake) == std::cv_status::timeout && Clock::now() >= deadline) {
            return false;
        }
    }
}

CallAnswer ObjectCalls::Examine(size_t target, const ExecReply &reply) const {
    CallAnswer answer;
    answer.target = target;
    if (reply.code < 0) {
        answer.why = ErrnoReason(reply.code);
        answer.no_class = reply.code == -EOPNOTSUPP || reply.code == -EPERM || reply.code == -EACCES;
        return answer;
    }
    try {
        uint16_t version = 0;
        answer.reply = DecodeReply(reply.data.get(), reply.length, version);
        if (version != PROTOCOL_VERSION) {
            answer.no_class = true;
            answer.why = "the object class speaks protocol " + std::to_string(version) + ", this client " +
                         std::to_string(PROTOCOL_VERSION);
            return answer;
        }
    } catch (const ProtocolError &error) {
        answer.why = std::string("its reply is malformed: ") + error.what();
        return answer;
    }
    answer.answered = answer.reply.status == ReplyStatus::OK;
    answer.corrupt = answer.reply.status == ReplyStatus::CORRUPT;
    answer.no_class =
        answer.reply.status == ReplyStatus::VERSION || answer.reply.status == ReplyStatus::CANNOT_READ;
    answer.why =
        answer.answered ? "" : std::string(ReplyStatusName(answer.reply.status)) + ": " + answer.reply.text;
    return answer;
}

} // namespace rawduck_ceph
