//! The versions of objects that a query has looked at, found by the query's connection.
#pragma once

#include "ceph/files/query_state.hpp"
#include "ceph/rados/pool/object_pins.hpp"

#include "duckdb/common/file_opener.hpp"

namespace rawduck_ceph {

constexpr const char *QUERY_PINS = "rawduck_ceph_pins";

//! Of the query that `context` runs; new ones, for this call only, where it runs none. Never null.
inline std::shared_ptr<ObjectPins> PinsOf(duckdb::ClientContext &context) {
    auto pins = QueryState<ObjectPins>::Of(context, QUERY_PINS);
    return pins ? std::move(pins) : std::make_shared<ObjectPins>();
}

//! Of the query that opens a file. Never null.
inline std::shared_ptr<ObjectPins> PinsOf(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    auto context = duckdb::FileOpener::TryGetClientContext(opener);
    return context ? PinsOf(*context) : std::make_shared<ObjectPins>();
}

//! Makes the queries of a connection, which runs them on behalf of another query, read that query's versions.
inline void UsePins(duckdb::ClientContext &context, std::shared_ptr<ObjectPins> pins) {
    QueryState<ObjectPins>::Share(context, QUERY_PINS, std::move(pins));
}

} // namespace rawduck_ceph
