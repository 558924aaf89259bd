//! Which column of the objects a column of a scan is. LogicalGet::names are no help: AS t(b, a) has changed them, or
//! they are those of the table of a COPY ... FROM. DuckDB takes the columns by their position in the first object, and
//! looks for the names that they have there in the others.
#pragma once

#include "duckdb/planner/operator/logical_get.hpp"

namespace rawduck_ceph {

//! The name in the objects of a column of a read_parquet scan, by its position in the table. Empty where the objects
//! do not have its values, and where DuckDB does not look for names.
duckdb::Identifier NameInObjects(const duckdb::LogicalGet &get, size_t column);

//! Whether the values of a column, by its position in the table, are not in the objects: a partition of their paths.
bool IsMadeByReader(const duckdb::LogicalGet &get, size_t column);

//! Whether a name in the objects is that of a column that the reader makes, such as file_row_number: in an object that
//! lacks the column, the class would return this one.
bool IsNamedAsVirtualColumn(const duckdb::LogicalGet &get, const duckdb::Identifier &name);

} // namespace rawduck_ceph
