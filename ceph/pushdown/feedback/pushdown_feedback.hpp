//! Everything that this process has observed and that decides whether a query is pushed or read:
//!
//!   per pool                    the rates of reads and of calls of the object class, the calls in flight
//!   per connection to a pool    whether the object class can be called; the ends of objects that were read
//!   per object                  the summary of its Parquet footer
//!   per query                   the size of its replies when it ran before, whether they are kept, and when one of
//!                               its expressions has failed
//!
//! It is filled in by rados/pool (reads, through ReadObserver), files (ends of objects), pushdown/scan (calls,
//! availability, reply sizes) and pushdown/decision (summaries, a trial of the link). It is used by
//! pushdown/decision and pushdown/scan, and rados_stats() shows the rates.
//!
//! Locks: PushdownFeedback, BoundedCache, RunningRate, CallWindow, ClassAvailability and ObjectTails have one
//! each. None of them is held while another lock is taken.
#pragma once

#include "ceph/parquet/parquet_summary.hpp"
#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/feedback/bounded_cache.hpp"
#include "ceph/pushdown/feedback/pool_feedback.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace rawduck_ceph {

class RadosPool;

//! Of a reply's size: the query did not run before.
constexpr uint64_t REPLY_SIZE_UNKNOWN = UINT64_MAX;

//! What a reply that was refused counts as. It has more than `limit` bytes, how many is not known. Such replies are
//! asked for again where twice as large ones are worth it, on a slower link, and each time that they are not, the size
//! doubles. Never a size that is kept.
constexpr uint64_t RefusedReplyBytes(uint64_t limit) {
    return std::max(2 * limit, KEPT_REPLY_BYTES_MAX);
}

//! Whether the OSDs' hosts have probably kept a query's answers, and for which request: another one is another key.
struct KeptAnswers {
    bool expected = false;
    uint64_t reply_bytes_max = 0;
    bool lz4 = false;
};

//! Thread-safe.
class PushdownFeedback {
  public:
    //! Never destroyed: databases may be closed by exit handlers.
    static PushdownFeedback &OfProcess();

    //! `cluster`: its UUID. Never null; lives as long as the process.
    std::shared_ptr<PoolRates> RatesOf(const std::string &cluster, const std::string &pool);
    //! Dropped some time after the connection.
    std::shared_ptr<PoolFeedback> Of(const std::shared_ptr<RadosPool> &pool);

    //! Uncompressed bytes of the largest reply of one object, by the first object, its version (another one may have
    //! anything in it), and the text of the pushed query.
    BoundedCache<uint64_t> reply_bytes{1000};
    //! After the last time that it was pushed, by the same key.
    BoundedCache<KeptAnswers> kept{1000};
    //! When an expression has last failed in an OSD, by the same key.
    BoundedCache<std::chrono::steady_clock::time_point> failures{1000};
    //! By object (RadosPool::KeyOf) and version; null for an object that is no Parquet file that we understand.
    BoundedCache<std::shared_ptr<const ParquetSummary>> summaries{10000};

  private:
    PushdownFeedback() = default;

    std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    std::map<std::pair<std::string, std::string>, std::shared_ptr<PoolRates>> rates_; //!< by cluster and pool
    std::map<std::weak_ptr<RadosPool>, std::shared_ptr<PoolFeedback>, std::owner_less<>> pools_;
};

} // namespace rawduck_ceph
