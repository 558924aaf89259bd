//! COPY ... TO 'rados://<pool>/<prefix>': writes a table as Parquet objects of a size that suits pushdown.
#include "ceph/sql/functions.hpp"

#include "ceph/rados/connection/rados_path.hpp"

#include "duckdb/common/string_util.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/planner/operator/logical_copy_to_file.hpp"

namespace rawduck_ceph {
namespace {

using duckdb::idx_t;

//! An object is closed after the row group with which it reaches this size, so that objects have 8 to 16 MB:
//! large enough to amortize the overhead of a request, small enough to distribute a table over all OSDs.
constexpr idx_t OBJECT_BYTES = 8 * 1000 * 1000;
//! Of a row group in memory: limits row groups of wide rows, which would be too large for an object.
constexpr idx_t ROW_GROUP_BYTES = 32 << 20;

void PlanCopy(duckdb::LogicalCopyToFile &copy) {
    if (!IsRadosPath(copy.file_path)) {
        return;
    }
    // Objects cannot be renamed and are replaced atomically, so there is no temporary file.
    copy.use_tmp_file = false;
    const bool names_one_object = duckdb::StringUtil::EndsWith(copy.file_path, "." + copy.file_extension);
    const bool user_chose_split = copy.rotate || copy.per_thread_output || copy.partition_output;
    if (names_one_object || user_chose_split || !copy.function.file_size_bytes) {
        return;
    }
    copy.file_size_bytes = OBJECT_BYTES;
    copy.rotate = true;
    if (!copy.batch_size_bytes.IsValid()) {
        copy.batch_size_bytes = ROW_GROUP_BYTES;
    }
}

void PlanAllCopies(duckdb::OptimizerExtensionInput &input,
                   duckdb::unique_ptr<duckdb::LogicalOperator> &plan) {
    if (plan->type == duckdb::LogicalOperatorType::LOGICAL_COPY_TO_FILE) {
        PlanCopy(plan->Cast<duckdb::LogicalCopyToFile>());
    }
    for (auto &child : plan->children) {
        PlanAllCopies(input, child);
    }
}

} // namespace

void RegisterRadosCopy(duckdb::ExtensionLoader &loader) {
    duckdb::OptimizerExtension extension;
    extension.pre_optimize_function = PlanAllCopies;
    duckdb::OptimizerExtension::Register(duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance()),
                                         extension);
    RegisterRadosExport(loader);
}

} // namespace rawduck_ceph
