//! Whether a query is worth pushing. An OSD reads and decodes the same bytes as the client would, so what is
//! gained is what does not travel. As long as nobody has measured, a query is pushed when its answer is
//! clearly smaller than the columns that it needs; once reads have shown how fast they are, when it is
//! expected to be done sooner.
#pragma once

#include "ceph/protocol/messages.hpp"
#include "ceph/pushdown/feedback/reply_sizes.hpp"
#include "ceph/rados/pool/rados_stats.hpp"

#include "duckdb/common/types.hpp"

#include <string>

namespace rawduck_ceph {

//! What is known before a scan starts. All sizes in bytes.
struct ScanEstimate {
    uint64_t objects = 0;
    uint64_t column_bytes = 0; //!< of all objects together, in the columns that the query needs
    uint64_t rows_out = 0;     //!< of all answers together
    bool rows_known = true;    //!< false: rows_out is a guess that is not worth much
    uint64_t row_bytes = 0;    //!< of an answer
};

//! What was measured lately.
struct MeasuredSpeeds {
    bool reads_known = false;
    double read_s_per_byte = 0; //!< moved
    bool osds_known = false;
    //! Of the columns, by all OSDs that work on a scan side by side. Waiting for busy ones is in it.
    double osd_s_per_byte = 0;
    double cpu_s_per_byte = 0; //!< for the same, of one processor; assumed as long as OSDs are not known
    double client_threads = 1;
};

//! `threads`: of the client.
MeasuredSpeeds SpeedsOf(RadosStats &stats, size_t threads);

struct Decision {
    bool offload = false;
    bool probe = false;      //!< the first object's answer tells the rest
    bool lz4 = false;        //!< the link is so slow that answers shall be compressed
    bool link_tells = false; //!< the speed of the link is not known, and knowing it may change the decision
    std::string why;
    //! No answer about one object shall be longer: more than this and reading the columns is cheaper.
    uint64_t reply_bytes_max = REPLY_BYTES_MAX;
};

//! Estimated bytes of a value, in memory.
uint64_t ValueBytes(const duckdb::LogicalType &type);

//! `learned`: bytes of an answer per object when this query ran before; UINT64_MAX when it was not known.
Decision Decide(const ScanEstimate &estimate, const MeasuredSpeeds &speeds, uint64_t learned);

} // namespace rawduck_ceph
