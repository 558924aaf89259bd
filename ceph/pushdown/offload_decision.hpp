//! Whether a query is worth pushing. An OSD reads and decodes the same bytes as the client would, so what is
//! gained is what does not travel: a query is pushed when its answer is clearly smaller than the columns that
//! it needs.
#pragma once

#include "ceph/protocol/messages.hpp"

#include "duckdb/common/types.hpp"

#include <string>

namespace rawduck {

//! What is known before a scan starts. All sizes in bytes.
struct ScanEstimate {
    uint64_t objects = 0;
    uint64_t object_bytes = 0; //!< of all objects together
    uint64_t rows_out = 0;     //!< of all answers together
    bool rows_known = true;    //!< false: rows_out is a guess that is not worth much
    double column_share = 1;   //!< of an object, taken by the columns that the query needs
    uint64_t row_bytes = 0;    //!< of an answer
};

struct Decision {
    bool offload = false;
    bool probe = false; //!< the first object's answer tells the rest
    std::string why;
    //! No answer about one object shall be longer: more than this and reading the columns is cheaper.
    uint64_t reply_bytes_max = REPLY_BYTES_MAX;
};

//! Estimated bytes of a value, in memory.
uint64_t ValueBytes(const duckdb::LogicalType &type);

//! Answers that were refused because of their size.
constexpr uint64_t TOO_LARGE_TO_KNOW = UINT64_MAX - 1;

//! `learned`: bytes of an answer per object when this query ran before; UINT64_MAX when it was not known.
Decision Decide(const ScanEstimate &estimate, uint64_t learned);

//! What earlier runs of a pushed query taught, by its text. Thread-safe; forgets when it grows too large.
uint64_t LearnedReplyBytes(const std::string &query);
void LearnReplyBytes(const std::string &query, uint64_t bytes_per_object);

} // namespace rawduck
