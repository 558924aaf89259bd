//! Whether statistics of objects exclude all of their rows from a scan.
#pragma once

#include "ceph/rados/pool/object_pins.hpp"

#include "duckdb/planner/filter/expression_filter.hpp"

#include <memory>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! Beyond it, examining the objects takes a good part of a second.
constexpr size_t EXAMINED_OBJECTS_MAX = 20000;

//! A filter of a scan on one column of its objects.
struct ColumnFilter {
    std::string column;
    duckdb::LogicalType type; //!< of the column in the query
    const duckdb::ExpressionFilter &filter;
};

//! Whether statistics of a column of this type may decide about the filter: it compares the column itself with
//! constants, or with the keys of a join.
bool IsDecidable(const duckdb::LogicalType &type, const duckdb::ExpressionFilter &filter);

struct PoolObject {
    std::shared_ptr<RadosPool> pool;
    std::string object;
};

//! For each object, whether one of the filters excludes all of its rows. Sends one small request per object, and
//! pins the versions of the objects. Throws Error, also when an object has another version than the pinned one.
std::vector<bool> ExcludedObjects(duckdb::ClientContext &context, const std::vector<PoolObject> &objects,
                                  const std::vector<ColumnFilter> &filters, ObjectPins &pins);

} // namespace rawduck_ceph
