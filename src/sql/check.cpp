//! nvme_check(target): verifies a volume without mounting it.
#include "sql/functions.hpp"
#include "sql/row_function.hpp"

#include "volume/check.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

const char *SeverityName(CheckFinding::Severity severity) {
    switch (severity) {
    case CheckFinding::Severity::OK:
        return "ok";
    case CheckFinding::Severity::WARNING:
        return "warning";
    case CheckFinding::Severity::ERROR:
        break;
    }
    return "error";
}

Rows CheckRows(duckdb::ClientContext &context, const Arguments &arguments) {
    RequireExternalAccess(context, "nvme_check");
    Rows rows;
    for (auto &finding : CheckVolume(arguments.Text(0, "target"))) {
        rows.push_back({Value(SeverityName(finding.severity)), Value(finding.what), Value(finding.detail)});
    }
    return rows;
}

} // namespace

void RegisterCheckFunction(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(loader, {"nvme_check",
                                 "Verifies checksums, extents and files of a volume; changes nothing",
                                 "SELECT * FROM nvme_check('/dev/nvme0n1') WHERE severity <> 'ok'",
                                 TargetSignature(),
                                 {{"severity", LogicalType::VARCHAR},
                                  {"what", LogicalType::VARCHAR},
                                  {"detail", LogicalType::VARCHAR}},
                                 CheckRows});
}

} // namespace rawduck
