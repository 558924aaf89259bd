//! Asks the object class about many objects at the same time. Needs no DuckDB.
#pragma once

#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/feedback/pool_feedback.hpp"
#include "ceph/rados/pool/rados_pool.hpp"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck_ceph {

struct CallTarget {
    std::shared_ptr<RadosPool> pool;
    std::shared_ptr<PoolFeedback> feedback; //!< of this pool
    std::string object;
    std::string path; //!< rados://pool/object
};

//! How many calls are out at a time; fewer when the pool's CallWindow is narrower.
struct CallLimits {
    size_t in_flight_max = 1;
    //! Until the first answer: what one object tells may spare asking the others. With 1, an answer that is
    //! too large means that no more are asked.
    size_t before_first_reply = 1;
};

//! The answer about one object, or why there is none.
struct CallAnswer {
    size_t target = 0;
    bool answered = false; //!< reply.status is OK
    bool corrupt = false;  //!< reading the object instead would be no better
    bool no_class = false; //!< the object class is not there, not allowed, or another version
    std::string why;       //!< it was not answered
    Reply reply;
};

//! Thread-safe. Answers are handed out in the order of the targets.
class ObjectCalls {
  public:
    ObjectCalls(std::vector<CallTarget> targets, const Request &request, const CallLimits &limits);
    //! Waits for what is in flight, which takes no longer than the connection's timeout.
    ~ObjectCalls();
    ObjectCalls(const ObjectCalls &) = delete;
    ObjectCalls &operator=(const ObjectCalls &) = delete;

    //! The next target that nobody has claimed; false when there is none.
    bool Claim(size_t &target);
    //! The answer about a claimed target; false when it does not come within `timeout_ms`: ask again.
    bool WaitFor(size_t target, uint32_t timeout_ms, CallAnswer &answer);

  private:
    using Clock = std::chrono::steady_clock;

    //! The next target to send; waiting_.end() for none now.
    std::map<size_t, Clock::time_point>::iterator NextToSend();
    //! Sends what may be sent; lets go of the lock meanwhile.
    void Send(std::unique_lock<std::mutex> &lock);
    void Arrived(size_t target, const ExecReply &reply);
    CallAnswer Examine(size_t target, const ExecReply &reply) const;
    //! Objects that were not asked yet are not asked any more: those of `pool`, or all when it is null.
    void GiveUp(const std::string &why, const RadosPool *pool);

    const std::vector<CallTarget> targets_;
    const std::string request_;
    const CallLimits limits_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<size_t, Clock::time_point> waiting_; //!< to be sent, not before that time
    std::map<size_t, CallAnswer> answers_;
    std::vector<int> attempts_;
    size_t claimed_ = 0;
    size_t in_flight_ = 0;
    size_t too_large_ = 0;
    bool first_came_ = false; //!< the first answer
    bool stopping_ = false;
};

} // namespace rawduck_ceph
