//! Whether a query is worth pushing. Pure: everything that is measured or fetched is in DecisionInputs.
//!
//! An OSD reads and decodes the same bytes as the client would; what pushing saves is their transfer, and the
//! client's processors. Where
//! the speed of the link is not known, a query is pushed when its replies are expected to be at most half as
//! large as the columns that it needs. Where the speed is known, the way that is expected to be clearly
//! faster is taken.
#pragma once

#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/feedback/pushdown_feedback.hpp"
#include "ceph/rados/connection/osd_counts.hpp"

#include "duckdb/common/types.hpp"

#include <optional>
#include <string>

namespace rawduck_ceph {

//! What is expected of a scan before it starts. All sizes in bytes.
struct ScanEstimate {
    uint64_t objects = 0;
    uint64_t column_bytes = 0; //!< stored in the columns that the query needs, all objects together
    uint64_t rows_out = 0;     //!< of all replies together
    bool rows_known = true;    //!< false: rows_out is a guess
    uint64_t row_bytes = 0;    //!< of a row of a reply
    bool any_order = false;    //!< the client may read some objects while OSDs work on others
};

//! What was measured in the last minute.
struct MeasuredSpeeds {
    bool reads_known = false;
    double read_s_per_byte = 0; //!< transferred
    bool osds_known = false;
    //! Elapsed time by bytes of the columns, of all OSDs together; includes waiting for busy ones.
    double osd_s_per_byte = 0;
    double osd_calls = 1; //!< in flight, on average, while that was measured
    //! Processor time of the client, computed from that of the OSDs where osds_known, else assumed.
    double client_cpu_s_per_byte = 0;
    double client_processors = 1;
    double client_threads = 1;
    //! What OSDs are taken to have.
    double osd_processors = ASSUMED_OSD_PROCESSORS;
    //! How fast these are taken to be where osds_known is false, at most 1: as fast as those that a thread of the client has.
    double osd_processor_share = 1;
    //! OSDs and client have the same processors: what one of them does, the other one cannot.
    bool shares_processors = false;

    static constexpr double ASSUMED_OSD_PROCESSORS = 2; //!< where the number of OSDs is not known either
};

//! `threads`: of the client. `osds`: of the cluster, where they are known.
MeasuredSpeeds SpeedsOf(PoolRates &rates, size_t threads, const std::optional<OsdCounts> &osds);

struct DecisionInputs {
    ScanEstimate estimate;
    MeasuredSpeeds speeds;
    //! Of one object, when the query ran before, or RefusedReplyBytes; else REPLY_SIZE_UNKNOWN.
    uint64_t earlier_reply_bytes = REPLY_SIZE_UNKNOWN;
    KeptAnswers kept;
    bool has_failed = false; //!< one of its expressions did so in an OSD not long ago
};

struct Decision {
    bool offload = false;
    bool probe = false;        //!< ask one object first: its reply decides about the others
    bool share = false;        //!< the client reads objects while OSDs are behind with others
    bool lz4 = false;          //!< the link is slow enough that compressed replies arrive sooner
    bool expects_kept = false; //!< pushed because the answers are probably kept
    std::string why;
    //! Above this size of one object's reply, reading its columns is cheaper.
    uint64_t reply_bytes_max = REPLY_BYTES_MAX;
    double read_object_s = 0; //!< what reading one object takes a thread of the client
};

Decision Decide(const DecisionInputs &inputs);

//! Whether the speed of the link is not known and may change the decision.
bool LinkSpeedMatters(const DecisionInputs &inputs);

//! Estimated bytes of a value, in memory.
uint64_t ValueBytes(const duckdb::LogicalType &type);

} // namespace rawduck_ceph
