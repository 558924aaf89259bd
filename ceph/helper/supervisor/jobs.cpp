#include "ceph/helper/supervisor/jobs.hpp"

#include <algorithm>

namespace rawduck_ceph {

namespace {

//! Requests of which something is remembered. All are forgotten when there are more.
constexpr size_t REMEMBERED_MAX = 4096;
//! Expected of a job whose request has never finished.
constexpr double FIRST_RUN_MS = 10;
//! Of the newest run in the average. What took longer was mostly held up by others, and asking too early costs
//! less than asking too late.
constexpr double FASTER_WEIGHT = 0.7, SLOWER_WEIGHT = 0.1;

double Milliseconds(HelperClock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

} // namespace

Job *JobTable::Find(const CallKey &key) {
    auto found = jobs_.find(key);
    return found == jobs_.end() ? nullptr : found->second.get();
}

bool JobTable::HasRoom(uint64_t expected_bytes) const {
    const auto waiting = std::count_if(jobs_.begin(), jobs_.end(), [](const Jobs::value_type &job) {
        return job.second->state == JobState::UPLOADING || job.second->state == JobState::QUEUED;
    });
    return waiting < int64_t{limits_.workers} * limits_.waiting_max_per_worker &&
           data_bytes_ + expected_bytes + PIECE_BYTES_MAX <= limits_.data_bytes_max;
}

Job *JobTable::AddPiece(const CallPacket &call, OwnedFd file, HelperClock::time_point now) {
    Job *job = Find(call.key);
    const bool is_next = job ? job->state == JobState::UPLOADING && job->received_bytes == call.first_byte &&
                                   job->call.request_bytes == call.request_bytes &&
                                   job->pieces.size() < PIECES_MAX
                             : call.first_byte == 0;
    const bool is_valid = call.data_bytes <= PIECE_BYTES_MAX && call.range_count <= RANGES_MAX &&
                          call.request_bytes <= REQUEST_BYTES_MAX + sizeof(Frame) &&
                          IsSealed(file.Get(), call.FileBytes());
    const bool has_room = data_bytes_ + call.FileBytes() <= limits_.data_bytes_max;
    if (!is_next || !is_valid || !has_room) {
        return nullptr;
    }
    if (!job) {
        job = jobs_.emplace(call.key, std::make_unique<Job>()).first->second.get();
        job->call = call;
    }
    job->asked = now;
    job->received_bytes += call.data_bytes;
    job->pieces.push_back({std::move(file), call.FileBytes(), call.range_count});
    data_bytes_ += call.FileBytes();
    if (call.is_last) {
        job->state = JobState::QUEUED;
        queue_.push_back(call.key);
    }
    return job;
}

Job *JobTable::NextQueued(HelperClock::time_point now) {
    if (queue_.empty()) {
        return nullptr;
    }
    Job *job = Find(queue_.front());
    queue_.erase(queue_.begin());
    job->state = JobState::RUNNING;
    job->started = now;
    return job;
}

void JobTable::Finish(Job &job, AnswerPacket answer, OwnedFd reply, HelperClock::time_point now) {
    const uint64_t request = job.call.request_hash;
    if (job.state == JobState::RUNNING) {
        if (run_ms_.size() >= REMEMBERED_MAX) {
            run_ms_.clear();
        }
        const double ms = Milliseconds(now - job.started);
        auto known = run_ms_.emplace(request, ms).first;
        known->second += (ms - known->second) * (ms < known->second ? FASTER_WEIGHT : SLOWER_WEIGHT);
    }
    ReleaseData(job);
    job.state = JobState::FINISHED;
    job.asked = now;
    job.answer = answer;
    job.reply = std::move(reply);
    CountReply(job, true);
    while (reply_bytes_ > limits_.reply_bytes_max || replies_ > limits_.replies_max) {
        DropOldestReply();
    }
}

void JobTable::CountReply(const Job &job, bool is_new) {
    const size_t replies = job.answer.reply_bytes > 0 ? 1 : 0;
    replies_ = is_new ? replies_ + replies : replies_ - replies;
    reply_bytes_ = is_new ? reply_bytes_ + job.answer.reply_bytes : reply_bytes_ - job.answer.reply_bytes;
}

void JobTable::DropOldestReply() {
    auto oldest = jobs_.end();
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
        const bool has_reply = job->second->answer.reply_bytes > 0;
        if (has_reply && (oldest == jobs_.end() || job->second->asked < oldest->second->asked)) {
            oldest = job;
        }
    }
    // Not erased: the caller may hold it. It answers that it must be done again.
    Job &job = *oldest->second;
    CountReply(job, false);
    job.reply.Close();
    job.answer = AnswerPacket();
    job.answer.status = ReplyStatus::BUSY;
    std::string("too many replies wait to be fetched").copy(job.answer.text, sizeof(job.answer.text) - 1);
}

void JobTable::ReleaseData(Job &job) {
    for (const JobPiece &piece : job.pieces) {
        data_bytes_ -= piece.file_bytes;
    }
    job.pieces.clear();
}

JobTable::Jobs::iterator JobTable::Erase(Jobs::iterator job) {
    ReleaseData(*job->second);
    CountReply(*job->second, false);
    queue_.erase(std::remove(queue_.begin(), queue_.end(), job->first), queue_.end());
    return jobs_.erase(job);
}

void JobTable::Expire(HelperClock::time_point now) {
    for (auto job = jobs_.begin(); job != jobs_.end();) {
        const auto keep = job->second->is_sent ? limits_.keep_sent : limits_.forget_after;
        const bool is_over = job->second->state != JobState::RUNNING && now - job->second->asked > keep;
        job = is_over ? Erase(job) : std::next(job);
    }
    for (auto slow = slow_until_.begin(); slow != slow_until_.end();) {
        slow = slow->second <= now ? slow_until_.erase(slow) : std::next(slow);
    }
}

bool JobTable::IsKnownSlow(uint64_t request_hash, HelperClock::time_point now) const {
    auto found = slow_until_.find(request_hash);
    return found != slow_until_.end() && now < found->second;
}

void JobTable::SetSlow(uint64_t request_hash, HelperClock::time_point now) {
    if (slow_until_.size() >= REMEMBERED_MAX) {
        slow_until_.clear();
    }
    slow_until_[request_hash] = now + limits_.refuse_slow_for;
}

uint32_t JobTable::ExpectedMs(const Job &job, HelperClock::time_point now) const {
    auto known = run_ms_.find(job.call.request_hash);
    const double run_ms = known == run_ms_.end() ? FIRST_RUN_MS : known->second;
    double ms = run_ms;
    if (job.state == JobState::RUNNING) {
        // One that takes longer than expected takes half as long again.
        const double elapsed = Milliseconds(now - job.started);
        ms = elapsed < run_ms ? run_ms - elapsed : elapsed / 2;
    } else {
        const auto place = std::find(queue_.begin(), queue_.end(), job.call.key) - queue_.begin();
        ms += run_ms * static_cast<double>(place) / limits_.workers;
    }
    return static_cast<uint32_t>(std::clamp(ms, 0.0, 1e6));
}

HelperClock::time_point JobTable::DeadlineOf(const Job &job) const {
    const std::chrono::milliseconds time(std::min(job.call.time_ms_max, limits_.time_ms_max));
    return job.started + time + limits_.kill_after;
}

} // namespace rawduck_ceph
