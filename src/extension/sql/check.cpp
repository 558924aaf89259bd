//! nvme_check(target, repair := false, contents := false): verifies a volume
//! without mounting it, and repairs what leaves no doubt.
#include "extension/file_systems/settings.hpp"
#include "extension/sql/contents/volume_contents.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"

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

void Append(Rows &rows, const std::vector<CheckFinding> &findings) {
    for (auto &finding : findings) {
        rows.push_back({Value(SeverityName(finding.severity)), Value(finding.what), Value(finding.detail),
                        TextOrNull(finding.repair)});
    }
}

Rows CheckRows(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string target = AllowedTarget(context, arguments);
    Rows rows;
    if (arguments.NamedFlag("repair")) {
        for (auto &done : RepairVolume(target)) {
            rows.push_back({Value("ok"), Value("repair"), Value("done: " + done), TextOrNull("")});
        }
    }
    Append(rows, CheckVolume(target, InterruptedOf(context)));
    if (arguments.NamedFlag("contents")) {
        Append(rows, CheckVolumeContents(context, target));
    }
    return rows;
}

} // namespace

void RegisterCheckFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature = TargetSignature();
    signature.AddKeywordOnly("repair", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    signature.AddKeywordOnly("contents", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    RegisterRowFunction(
        loader,
        {"nvme_check",
         "Verifies checksums, extents and files of a volume, also while it is written to. repair: do what "
         "the column repair says, on one that nobody has open; without it, nothing is changed. contents: "
         "read all "
         "databases, their snapshots and logs, too, and verify the checksums that DuckDB gave their blocks "
         "and entries.",
         "SELECT * FROM nvme_check('/dev/nvme0n1') WHERE severity <> 'ok'",
         signature,
         {{"severity", LogicalType::VARCHAR, "ok, warning or error"},
          {"what", LogicalType::VARCHAR, "What was looked at"},
          {"detail", LogicalType::VARCHAR, "What was found"},
          {"repair", LogicalType::VARCHAR, "What repair := true would do; NULL: nothing"}},
         CheckRows});
}

} // namespace rawduck
