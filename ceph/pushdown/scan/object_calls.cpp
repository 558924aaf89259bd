#include "ceph/pushdown/scan/object_calls.hpp"

#include "ceph/protocol/bytes.hpp"
#include "ceph/pushdown/scan/reading_share.hpp"
#include "ceph/rados/connection/rados_error.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>

namespace rawduck_ceph {

namespace {

//! Attempts of a call that finds its OSD busy, before the object is read instead.
constexpr int ATTEMPTS_MAX = 300;
//! After more replies that are too large, the unsent calls are cancelled.
constexpr size_t TOO_LARGE_MAX = 1;
constexpr std::chrono::milliseconds BUSY_PAUSE{2};
//! The pause grows with each attempt, up to this multiple.
constexpr int BUSY_PAUSES_MAX = 10;
//! An OSD may work on a call for the request's time, and for this time on what is before it.
constexpr std::chrono::milliseconds WAITING_MAX{5000};

std::string ErrnoReason(int code, const std::string &pool) {
    switch (-code) {
    case EOPNOTSUPP:
        return "the OSD has no object class rawduck";
    case EPERM:
    case EACCES:
        // With the pool: a capability without one lets the user call, and so read, in every pool.
        return "the user may not call the object class: it needs the capability "
               "osd 'allow class rawduck query pool " +
               pool + "'";
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
      working_max_(std::chrono::milliseconds(request.time_ms_max) + WAITING_MAX), calls_(targets_.size()),
      attempts_(targets_.size()), first_working_(targets_.size()), in_window_(targets_.size()) {
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
    for (const auto &entry : working_) {
        targets_[entry.first].feedback->rates->calls.Ended(0);
    }
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
    const bool below_limit = in_flight_ + working_.size() + answers_.size() <
                             (first_reply_received_ ? limits_.in_flight_max : limits_.before_first_reply);
    const bool is_idle = in_flight_ + working_.size() == 0;
    const bool is_awaited = next->first < claimed_ || answers_.empty();
    return below_limit || (is_idle && is_awaited) ? next : unsent_.end();
}

void ObjectCalls::SendCalls(std::unique_lock<std::mutex> &lock) {
    AskAgain(lock);
    for (auto next = NextToSend(); next != unsent_.end(); next = NextToSend()) {
        const size_t target = next->first;
        PoolRates &rates = *targets_[target].feedback->rates;
        if (!rates.call_window.TryEnter(limits_.in_flight_max)) {
            return; // other scans use the window; the threads that wait try again
        }
        unsent_.erase(next);
        attempts_[target]++;
        in_window_[target] = true;
        rates.calls.Started();
        asked_[target] = Clock::now();
        SendCall(lock, target);
    }
}

void ObjectCalls::AskAgain(std::unique_lock<std::mutex> &lock) {
    const auto now = Clock::now();
    for (auto next = working_.begin(); next != working_.end() && !stopping_;) {
        if (next->second > now) {
            ++next;
            continue;
        }
        const size_t target = next->first;
        working_.erase(next);
        SendCall(lock, target);
        next = working_.upper_bound(target); // the lock was released
    }
}

void ObjectCalls::SendCall(std::unique_lock<std::mutex> &lock, size_t target) {
    in_flight_++;
    lock.unlock();
    auto callback = [this, target](const ExecReply &reply) { OnReply(target, reply); };
    std::shared_ptr<ExecCall> call;
    try {
        const CallTarget &called = targets_[target];
        call = called.pool->Exec(called.object, pins_->Find(*called.pool, called.object), "rawduck", "query",
                                 request_, callback);
    } catch (const Error &) {
        ExecReply failed;
        failed.code = -EIO;
        OnReply(target, failed);
    }
    lock.lock();
    calls_[target] = std::move(call);
    if (stopping_ && calls_[target]) {
        calls_[target]->Cancel(); // Cancel has not seen it
    }
}

void ObjectCalls::Cancel() {
    std::vector<std::shared_ptr<ExecCall>> calls;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        calls = calls_;
    }
    for (const auto &call : calls) {
        if (call) {
            call->Cancel();
        }
    }
}

void ObjectCalls::LeaveWindow(size_t target, bool busy) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!in_window_[target]) {
            return; // the reply to a call that asked again
        }
        in_window_[target] = false;
    }
    targets_[target].feedback->rates->call_window.Leave(busy);
}

void ObjectCalls::OnReply(size_t target, const ExecReply &reply) {
    CallAnswer answer = DecodeAnswer(target, reply);
    PoolRates &rates = *targets_[target].feedback->rates;
    LeaveWindow(target, answer.reply.status == ReplyStatus::BUSY);
    if (answer.reply.status == ReplyStatus::WORKING) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto now = Clock::now();
        if (asked_.count(target) == 0) { // it is being read
            rates.calls.Ended(0);
            in_flight_--;
            changed_.notify_all();
            return;
        }
        // Somebody answers, so the others can be asked too, unless the first reply decides about them.
        first_reply_received_ = first_reply_received_ || limits_.before_first_reply > 1;
        if (first_working_[target] == Clock::time_point()) {
            first_working_[target] = now;
        }
        if (now - first_working_[target] < working_max_) {
            in_flight_--;
            working_[target] = now + std::chrono::milliseconds(answer.reply.retry_ms);
            changed_.notify_all();
            return;
        }
        answer.why = "the OSD did not finish in time";
    }
    if (answer.reply.cached) {
        rates.calls.EndedWithoutWork();
    } else {
        rates.calls.Ended(answer.reply.read_bytes, answer.reply.cpu_us);
    }
    // Notified under the lock: the destructor may be waiting for the last reply.
    std::lock_guard<std::mutex> lock(mutex_);
    in_flight_--;
    const auto asked = asked_.find(target);
    if (asked == asked_.end()) { // it is being read
        changed_.notify_all();
        return;
    }
    const auto asked_at = asked->second;
    asked_.erase(asked);
    const bool may_ask_again = !expression_failed_ && attempts_[target] < ATTEMPTS_MAX;
    if (answer.reply.status == ReplyStatus::BUSY && may_ask_again) {
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
    if (answer.expression_failed) {
        expression_failed_ = true;
        CancelUnsent("not asked, because an expression has failed on another object", nullptr);
    }
    first_reply_received_ = true;
    if (answer.answered) {
        answered_++;
        longest_answer_ = std::max<std::chrono::duration<double>>(longest_answer_, Clock::now() - asked_at);
    }
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
        // Calls that found their OSD busy or working are sent again by this thread when their pause is over.
        if (changed_.wait_until(lock, NextWake(deadline)) == std::cv_status::timeout &&
            Clock::now() >= deadline) {
            return false;
        }
    }
}

bool ObjectCalls::TakeToRead(size_t &target) {
    const auto now = Clock::now();
    const std::chrono::duration<double> elapsed = now - started_;
    const ScanProgress progress{unsent_.size(), asked_.size(), answered_, elapsed.count()};
    if (ShouldRead(progress, limits_.read_object_s)) {
        target = std::prev(unsent_.end())->first; // the first ones are asked about next
        unsent_.erase(target);
        return true;
    }
    // The one that was asked about last is probably the last one in its OSD, too.
    auto last = asked_.end();
    for (auto entry = asked_.begin(); entry != asked_.end(); ++entry) {
        const std::chrono::duration<double> waited = now - entry->second;
        if (ShouldReadAsked(progress, waited.count(), longest_answer_.count(), limits_.read_object_s) &&
            (last == asked_.end() || entry->second > last->second)) {
            last = entry;
        }
    }
    if (last == asked_.end()) {
        return false;
    }
    target = last->first;
    asked_.erase(last);
    if (working_.erase(target) > 0) {
        targets_[target].feedback->rates->calls.Ended(0);
    }
    return true;
}

std::map<size_t, CallAnswer>::iterator ObjectCalls::NextAnswer() {
    const auto next = std::find_if(answers_.begin(), answers_.end(),
                                   [](const auto &entry) { return !entry.second.expression_failed; });
    const bool all_others_taken = unsent_.empty() && asked_.empty();
    return next == answers_.end() && all_others_taken ? answers_.begin() : next;
}

Taken ObjectCalls::TakeAny(uint32_t timeout_ms, CallAnswer &answer) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        SendCalls(lock);
        const auto next = NextAnswer();
        const bool has_answer = next != answers_.end();
        size_t to_read = 0;
        if (has_answer || TakeToRead(to_read)) {
            answer = CallAnswer();
            answer.target = to_read;
            if (has_answer) {
                answer = std::move(next->second);
                answers_.erase(next);
            }
            if (++taken_ == targets_.size()) {
                changed_.notify_all(); // nothing will come for the other threads
            }
            SendCalls(lock);
            return has_answer ? Taken::ANSWER : Taken::TO_READ;
        }
        if (taken_ == targets_.size()) {
            return Taken::NOTHING_LEFT;
        }
        if (changed_.wait_until(lock, NextWake(deadline)) == std::cv_status::timeout &&
            Clock::now() >= deadline) {
            return Taken::NOT_YET;
        }
    }
}

ObjectCalls::Clock::time_point ObjectCalls::NextWake(Clock::time_point latest) const {
    const bool shares = std::isfinite(limits_.read_object_s);
    auto wake = unsent_.empty() && !shares ? latest : std::min(latest, Clock::now() + BUSY_PAUSE);
    for (const auto &entry : working_) {
        wake = std::min(wake, entry.second);
    }
    return wake;
}

CallAnswer ObjectCalls::DecodeAnswer(size_t target, const ExecReply &reply) const {
    CallAnswer answer;
    answer.target = target;
    answer.version = reply.version;
    if (reply.code < 0) {
        answer.why = ErrnoReason(reply.code, targets_[target].pool->Name());
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
    answer.expression_failed = answer.reply.status == ReplyStatus::EXPRESSION_FAILED;
    answer.no_class = answer.reply.status == ReplyStatus::VERSION ||
                      answer.reply.status == ReplyStatus::CANNOT_READ ||
                      answer.reply.status == ReplyStatus::UNAVAILABLE;
    answer.why =
        answer.answered ? "" : std::string(ReplyStatusName(answer.reply.status)) + ": " + answer.reply.text;
    return answer;
}

} // namespace rawduck_ceph
