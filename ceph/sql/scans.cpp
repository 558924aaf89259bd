//! rados_scans(): the last scans of rados:// objects, what was decided about pushdown and
//! why, and the outcome.
#include "ceph/sql/functions.hpp"

#include "ceph/files/visible.hpp"
#include "ceph/pushdown/scan/scan_log.hpp"
#include "extension/sql/row_function.hpp"

namespace rawduck_ceph {

using rawduck::Arguments;
using rawduck::Column;
using rawduck::RegisterRowFunction;
using rawduck::Rows;
using rawduck::TextOrNull;

namespace {

using duckdb::LogicalType;
using duckdb::Value;

Rows ScanRows(duckdb::ClientContext &context, const Arguments &) {
    Rows rows;
    for (auto &scan : LoggedScans()) {
        if (!IsVisible(context, scan->outcome.first_path, duckdb::FileType::FILE_TYPE_REGULAR)) {
            continue;
        }
        rows.push_back(
            {Value::UBIGINT(scan->number), Value(scan->outcome.first_path),
             Value::UBIGINT(scan->outcome.objects), Value::BOOLEAN(scan->outcome.offloaded),
             TextOrNull(scan->outcome.pushed), Value(scan->outcome.why), Value::UBIGINT(scan->answered),
             Value::UBIGINT(scan->cached), Value::UBIGINT(scan->fell_back), TextOrNull(scan->FallbackText()),
             Value::UBIGINT(scan->shared), Value::UBIGINT(scan->pruned), Value::UBIGINT(scan->reply_bytes),
             Value::UBIGINT(scan->osd_read_bytes), Value::UBIGINT(scan->osd_cpu_us)});
    }
    return rows;
}

} // namespace

void RegisterRadosScans(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(
        loader,
        {"rados_scans",
         "The last scans of rados:// objects: whether they were pushed into the OSDs, why, and the outcome",
         "SELECT * FROM rados_scans() ORDER BY scan DESC LIMIT 1",
         duckdb::FunctionSignature(),
         {{"scan", LogicalType::UBIGINT},
          {"first_object", LogicalType::VARCHAR},
          {"objects", LogicalType::UBIGINT},
          {"offloaded", LogicalType::BOOLEAN},
          {"pushed", LogicalType::VARCHAR},
          {"why", LogicalType::VARCHAR},
          {"answered", LogicalType::UBIGINT},
          {"cached", LogicalType::UBIGINT},
          {"fell_back", LogicalType::UBIGINT},
          {"fallback_reasons", LogicalType::VARCHAR},
          {"shared", LogicalType::UBIGINT},
          {"pruned", LogicalType::UBIGINT},
          {"reply_bytes", LogicalType::UBIGINT},
          {"osd_read_bytes", LogicalType::UBIGINT},
          {"osd_cpu_us", LogicalType::UBIGINT}},
         ScanRows});
}

} // namespace rawduck_ceph
