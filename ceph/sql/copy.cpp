//! COPY ... TO 'rados://<pool>/<prefix>': a table becomes
//! objects of a good size, each a Parquet file by itself.
#include "ceph/sql/functions.hpp"

#include "ceph/rados/connection/rados_path.hpp"
#include "common/text/text.hpp"

#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/planner/operator/logical_copy_to_file.hpp"

namespace rawduck_ceph {
namespace {

using duckdb::idx_t;

//! A file is closed after the row group with which it reaches this size, so that objects have 8 to 16 MB:
//! large enough that an OSD's time goes into data, small enough that a table spreads over all OSDs.
constexpr idx_t OBJECT_BYTES = 8 * 1000 * 1000;
//! Of a row group in memory. Keeps rows that are wide from
//! making one row group that is too large for an object.
constexpr idx_t ROW_GROUP_BYTES = 32 << 20;

void PlanObjects(duckdb::LogicalCopyToFile &copy) {
    if (!IsRadosPath(copy.file_path)) {
        return;
    }
    // DuckDB writes beside an existing local file and renames.
    // Objects are replaced in one step, and have no rename.
    copy.use_tmp_file = false;
    const bool named_whole = rawduck::EndsWith(copy.file_path, "." + copy.file_extension);
    const bool has_own_plan = copy.rotate || copy.per_thread_output || copy.partition_output;
    if (named_whole || has_own_plan || !copy.function.file_size_bytes) {
        return;
    }
    copy.file_size_bytes = OBJECT_BYTES;
    copy.rotate = true;
    if (!copy.batch_size_bytes.IsValid()) {
        copy.batch_size_bytes = ROW_GROUP_BYTES;
    }
}

void PlanEveryCopy(duckdb::OptimizerExtensionInput &input,
                   duckdb::unique_ptr<duckdb::LogicalOperator> &plan) {
    if (plan->type == duckdb::LogicalOperatorType::LOGICAL_COPY_TO_FILE) {
        PlanObjects(plan->Cast<duckdb::LogicalCopyToFile>());
    }
    for (auto &child : plan->children) {
        PlanEveryCopy(input, child);
    }
}

} // namespace

void RegisterRadosCopy(duckdb::ExtensionLoader &loader) {
    duckdb::OptimizerExtension extension;
    extension.pre_optimize_function = PlanEveryCopy;
    duckdb::OptimizerExtension::Register(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()),
                                         extension);
}

} // namespace rawduck_ceph
