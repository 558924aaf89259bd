#include "ceph/pushdown/proof/object_columns.hpp"

#include "duckdb/common/multi_file/multi_file_states.hpp"

#include <algorithm>
#include <iterator>

namespace rawduck_ceph {

namespace {

//! The scan of a COPY ... FROM does not list them, but that of the class does.
constexpr const char *MADE_BY_READ_PARQUET[] = {"filename", "file_index", "file_row_number",
                                                "file_row_group_number"};

} // namespace

duckdb::Identifier NameInObjects(const duckdb::LogicalGet &get, size_t column) {
    auto *data = dynamic_cast<const duckdb::MultiFileBindData *>(get.bind_data.get());
    const bool by_name = data && data->reader_bind.schema.empty() &&
                         data->reader_bind.mapping == duckdb::MultiFileColumnMappingMode::BY_NAME;
    if (!by_name || column >= data->columns.size() || data->IsGeneratedColumn(column)) {
        return duckdb::Identifier();
    }
    return data->columns[column].name;
}

bool IsMadeByReader(const duckdb::LogicalGet &get, size_t column) {
    return get.bind_data->Cast<duckdb::MultiFileBindData>().IsGeneratedColumn(column);
}

bool IsNamedAsVirtualColumn(const duckdb::LogicalGet &get, const duckdb::Identifier &name) {
    return std::any_of(std::begin(MADE_BY_READ_PARQUET), std::end(MADE_BY_READ_PARQUET),
                       [&](const char *made) { return name == made; }) ||
           std::any_of(get.virtual_columns.begin(), get.virtual_columns.end(),
                       [&](const auto &entry) { return entry.second.name == name; });
}

} // namespace rawduck_ceph
