//! Calls of the object class for many objects at the same time. Free of DuckDB.
#pragma once

#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/feedback/pool_feedback.hpp"
#include "ceph/rados/pool/object_pins.hpp"
#include "ceph/rados/pool/rados_pool.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
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

//! How the objects of a scan are shared out.
struct CallLimits {
    //! Calls in flight; the pool's CallWindow may be smaller.
    size_t in_flight_max = 1;
    //! Until the first reply, which may make the other calls unnecessary. With 1, a first reply that is too
    //! large cancels all other calls.
    size_t before_first_reply = 1;
    //! What reading one object takes a thread of the client. Only for TakeAny; infinite: nothing is read while
    //! OSDs can be asked.
    double read_object_s = std::numeric_limits<double>::infinity();
};

//! The reply for one object, or why there is none.
struct CallAnswer {
    size_t target = 0;
    bool answered = false; //!< reply.status is OK
    //! An expression failed in the OSD. Reading the object may not come to the value, or not be needed.
    bool expression_failed = false;
    bool replaced = false; //!< the pinned version is gone
    uint64_t version = 0;  //!< of the object that the answer is about
    bool no_class = false; //!< the object class is missing, forbidden, or of another version
    std::string why;       //!< the object was not answered
    Reply reply;
};

enum class Taken {
    ANSWER,      //!< of an OSD, or why there is none
    TO_READ,     //!< the caller reads the object `target`
    NOT_YET,     //!< nothing within the time
    NOTHING_LEFT //!< other threads have taken the last ones
};

//! Thread-safe. Targets are taken in their order (ClaimNext and WaitFor), while calls for the following ones are
//! in flight, or in any order (TakeAny): a scan uses one of both ways. Calls that find their OSD busy, or still
//! working on them, are repeated by the threads that wait.
class ObjectCalls {
  public:
    //! `pins`: the versions that the query has looked at, which the calls assert. Answers do not change it.
    ObjectCalls(std::vector<CallTarget> targets, const Request &request, const CallLimits &limits,
                std::shared_ptr<ObjectPins> pins);
    //! Waits for the calls in flight, not longer than the connection's timeout; after Cancel, hardly at all.
    ~ObjectCalls();
    ObjectCalls(const ObjectCalls &) = delete;
    ObjectCalls &operator=(const ObjectCalls &) = delete;

    //! Claims the next target; false when there are no more.
    bool ClaimNext(size_t &target);
    //! The answer for a claimed target; false when it has not arrived after `timeout_ms`.
    bool WaitFor(size_t target, uint32_t timeout_ms, CallAnswer &answer);

    //! Takes an answer that has arrived, one that says that an expression failed after all others: what is above the
    //! scan may need no more rows by then. Or takes an object to read while OSDs are behind with the others: one that no
    //! OSD was asked about, or one whose OSD is busier than the others or does not answer (reading_share.hpp). Its
    //! answer is dropped.
    Taken TakeAny(uint32_t timeout_ms, CallAnswer &answer);

    //! Whether an expression has failed in an OSD, although the answer that says so may not be taken yet.
    bool HasFailedExpression() const { return expression_failed_; }

    //! Ends the calls in flight and sends no more. Nobody waits for answers afterwards.
    void Cancel();

  private:
    using Clock = std::chrono::steady_clock;

    //! Whether there is an object that the caller should read, which is then no longer an OSD's.
    bool TakeToRead(size_t &target);

    //! The next answer for TakeAny; answers_.end() for none.
    std::map<size_t, CallAnswer>::iterator NextAnswer();

    //! Sends this call, which has entered the window. Releases the lock while it sends.
    void SendCall(std::unique_lock<std::mutex> &lock, size_t target);
    //! Asks again about the calls that OSDs work on and whose time has come.
    void AskAgain(std::unique_lock<std::mutex> &lock);
    //! When a call may have to be sent again; `latest` at the latest.
    Clock::time_point NextWake(Clock::time_point latest) const;
    //! The next call that may be sent now; unsent_.end() for none.
    std::map<size_t, Clock::time_point>::iterator NextToSend();
    //! Sends all calls that may be sent. Releases the lock while it sends.
    void SendCalls(std::unique_lock<std::mutex> &lock);
    //! On a thread of librados.
    void OnReply(size_t target, const ExecReply &reply);
    //! The window counts calls in flight only, not the objects that OSDs work on between two calls: another
    //! scan may have to end before a thread asks for these again.
    void LeaveWindow(size_t target, bool busy);
    CallAnswer DecodeAnswer(size_t target, const ExecReply &reply) const;
    //! Answers all unsent calls with `why`: those to `pool`, or all when it is null.
    void CancelUnsent(const std::string &why, const RadosPool *pool);

    const std::vector<CallTarget> targets_;
    const std::string request_;
    const CallLimits limits_;
    const std::shared_ptr<ObjectPins> pins_;
    const std::chrono::milliseconds working_max_; //!< how long an OSD may work on a call

    //! Guards what follows. Only the lock of CallWindow is taken while it is held: SendCalls releases it
    //! before it calls the pool.
    std::mutex mutex_;
    std::condition_variable changed_;            //!< a reply arrived
    std::map<size_t, Clock::time_point> unsent_; //!< targets to call, not before this time
    //! Targets that OSDs work on, to be asked about again at this time. They stay in the window.
    std::map<size_t, Clock::time_point> working_;
    std::map<size_t, CallAnswer> answers_; //!< not fetched yet
    //! Targets whose calls are in flight, or that OSDs work on, and since when.
    std::map<size_t, Clock::time_point> asked_;
    std::vector<std::shared_ptr<ExecCall>> calls_; //!< the last one for each target; null: none yet
    std::vector<int> attempts_;
    std::vector<Clock::time_point> first_working_; //!< when an OSD first said so
    std::vector<bool> in_window_;                  //!< whether the call in flight has a place in the window
    size_t claimed_ = 0;                           //!< by ClaimNext
    size_t taken_ = 0;                             //!< by TakeAny
    size_t answered_ = 0;                          //!< by OSDs
    std::chrono::duration<double> longest_answer_{0}; //!< from the call, of those
    Clock::time_point started_ = Clock::now();
    size_t in_flight_ = 0;
    size_t too_large_ = 0; //!< replies
    bool first_reply_received_ = false;
    std::atomic<bool> expression_failed_{false}; //!< in an OSD; no more calls are sent
    bool stopping_ = false;
};

} // namespace rawduck_ceph
