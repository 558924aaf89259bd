#include "extension/sql/target_argument.hpp"

#include "extension/file_systems/sandbox.hpp"

namespace rawduck {

duckdb::FunctionSignature TargetSignature() {
    duckdb::FunctionSignature signature;
    signature.AddParameter("target", duckdb::LogicalType::VARCHAR);
    return signature;
}

std::string AllowedTarget(duckdb::ClientContext &context, const Arguments &arguments) {
    std::string target = arguments.Text(0, "target");
    Sandbox(context).RequireVolume(target);
    return target;
}

} // namespace rawduck
