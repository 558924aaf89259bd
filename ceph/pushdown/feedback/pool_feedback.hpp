//! What was observed of one pool. Free of librados and of DuckDB.
#pragma once

#include "ceph/pushdown/feedback/call_window.hpp"
#include "ceph/pushdown/feedback/class_availability.hpp"
#include "ceph/pushdown/feedback/object_tails.hpp"
#include "ceph/pushdown/feedback/running_rate.hpp"
#include "ceph/rados/pool/read_observer.hpp"

#include <memory>

namespace rawduck_ceph {

//! The speed of a pool, shared by all connections to it. Thread-safe.
class PoolRates final : public ReadObserver {
  public:
    void ReadStarted() override { reads.Started(); }
    void ReadEnded(uint64_t bytes) override { reads.Ended(bytes); }

    RunningRate reads;      //!< by the bytes that were transferred
    RunningRate calls;      //!< of the object class, by the bytes that OSDs read in the objects
    CallWindow call_window; //!< how many calls are in flight
};

//! One connection to a pool: the user of another one may have other capabilities. Thread-safe.
struct PoolFeedback {
    explicit PoolFeedback(std::shared_ptr<PoolRates> shared_rates) : rates(std::move(shared_rates)) {}

    const std::shared_ptr<PoolRates> rates;
    ClassAvailability classes;
    ObjectTails tails;
};

} // namespace rawduck_ceph
