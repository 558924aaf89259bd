#include "ceph/pushdown/scan/object_calls.hpp"

#include "ceph/protocol/bytes.hpp"
#include "ceph/rados/connection/rados_error.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace rawduck_ceph {

namespace {

//! Attempts of a call that finds its OSD busy, before the object is read instead.
constexpr int ATTEMPTS_MAX = 300;
//! After more replies that are too large, the unsent calls are cancelled.
constexpr size_t TOO_LARGE_MAX = 1;
constexpr std::chrono::milliseconds BUSY_PAUSE{2};
//! The pause grows with each attempt, up to this multiple.
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
    case ERANGE:
    case EOVERFLOW:
        return "the object was replaced since the query has opened it";
    case ETIMEDOUT:
        return "the OSD did not answer in time";
    default:
        return ErrnoText(-code);
    }
}

} // namespace

ObjectCalls::ObjectCalls(std::vector<CallTarget> targets, const Request &request, const CallLimits &limits,
                         std::shared_ptr<ObjectPins> pins)
    : targets_(std::move(targets)), request_(EncodeRequest(request)), limits_(limits), pins_(std::move(pins)),
      attempts_(targets_.size()) {
    for (size_t i = 0; i < targets_.size(); i++) {
        unsent_[i] = Clock::time_point();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    SendCalls(lock);
}

ObjectCalls::~ObjectCalls() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.wait(lock, [&] { return in_flight_ == 0; });
}

std::map<size_t, ObjectCalls::Clock::time_point>::iterator ObjectCalls::NextToSend() {
    const auto now = Clock::now();
    auto next = unsent_.begin();
    while (next != unsent_.end() && next->second > now) {
        ++next;
    }
    if (stopping_ || next == unsent_.end()) {
        return unsent_.end();
    }
    // Answers that were not fetched yet count too, because they take memory. But a call that a thread waits
    // for must be sent even when later answers reach the limit.
    const bool below_limit = in_flight_ + answers_.size() <
                             (first_reply_received_ ? limits_.in_flight_max : limits_.before_first_reply);
    return below_limit || (in_flight_ == 0 && next->first < claimed_) ? next : unsent_.end();
}

void ObjectCalls::SendCalls(std::unique_lock<std::mutex> &lock) {
    for (auto next = NextToSend(); next != unsent_.end(); next = NextToSend()) {
        const size_t number = next->first;
        PoolRates &rates = *targets_[number].feedback->rates;
        if (!rates.call_window.TryEnter(limits_.in_flight_max)) {
            return; // other scans use the window; the threads that wait try again
        }
        unsent_.erase(next);
        attempts_[number]++;
        in_flight_++;
        lock.unlock();
        auto callback = [this, number](const ExecReply &reply) { OnReply(number, reply); };
        rates.calls.Started();
        const CallTarget &target = targets_[number];
        try {
            target.pool->Exec(target.object, pins_->Find(*target.pool, target.object), "rawduck", "query",
                              request_, callback);
        } catch (const Error &) {
            ExecReply failed;
            failed.code = -EIO;
            OnReply(number, failed);
        }
        lock.lock();
    }
}

void ObjectCalls::OnReply(size_t target, const ExecReply &reply) {
    CallAnswer answer = DecodeAnswer(target, reply);
    PoolRates &rates = *targets_[target].feedback->rates;
    rates.calls.Ended(answer.reply.read_bytes, answer.reply.cpu_us);
    rates.call_window.Leave(answer.reply.status == ReplyStatus::BUSY);
    // Notified under the lock: the destructor may be waiting for the last reply.
    std::lock_guard<std::mutex> lock(mutex_);
    in_flight_--;
    if (answer.reply.status == ReplyStatus::BUSY && attempts_[target] < ATTEMPTS_MAX) {
        unsent_[target] = Clock::now() + BUSY_PAUSE * std::min(attempts_[target], BUSY_PAUSES_MAX);
        changed_.notify_all();
        return;
    }
    too_large_ += answer.reply.status == ReplyStatus::TOO_LARGE ? 1 : 0;
    const bool was_probe = !first_reply_received_ && limits_.before_first_reply == 1;
    if (too_large_ > TOO_LARGE_MAX || (was_probe && too_large_ > 0)) {
        CancelUnsent("not asked, because the answers about other objects are too large", nullptr);
    }
    if (answer.reply.status == ReplyStatus::CANNOT_READ) {
        CancelUnsent(answer.why, targets_[target].pool.get()); // this holds for all objects of the pool
    }
    first_reply_received_ = true;
    answers_[target] = std::move(answer);
    changed_.notify_all();
}

void ObjectCalls::CancelUnsent(const std::string &why, const RadosPool *pool) {
    for (auto entry = unsent_.begin(); entry != unsent_.end();) {
        if (pool && targets_[entry->first].pool.get() != pool) {
            ++entry;
            continue;
        }
        answers_[entry->first].target = entry->first;
        answers_[entry->first].why = why;
        entry = unsent_.erase(entry);
    }
}

bool ObjectCalls::ClaimNext(size_t &target) {
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
        SendCalls(lock);
        auto found = answers_.find(target);
        if (found != answers_.end()) {
            answer = std::move(found->second);
            answers_.erase(found);
            SendCalls(lock);
            return true;
        }
        // Calls that found their OSD busy are sent again by this thread when their pause is over.
        const auto wake = unsent_.empty() ? deadline : std::min(deadline, Clock::now() + BUSY_PAUSE);
        if (changed_.wait_until(lock, wake) == std::cv_status::timeout && Clock::now() >= deadline) {
            return false;
        }
    }
}

CallAnswer ObjectCalls::DecodeAnswer(size_t target, const ExecReply &reply) const {
    CallAnswer answer;
    answer.target = target;
    answer.version = reply.version;
    if (reply.code < 0) {
        answer.why = ErrnoReason(reply.code);
        answer.replaced = reply.code == -ERANGE || reply.code == -EOVERFLOW;
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
