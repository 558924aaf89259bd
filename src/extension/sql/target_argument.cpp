#include "extension/sql/target_argument.hpp"

#include "extension/file_systems/sandbox.hpp"
#include "volume/names/path.hpp"

namespace rawduck {

duckdb::FunctionSignature TargetSignature() {
    duckdb::FunctionSignature signature;
    signature.AddParameter("target", duckdb::LogicalType::VARCHAR);
    return signature;
}

std::string TargetOf(const std::string &text) {
    std::string target = IsVolumePath(text) ? text.substr(std::string(VOLUME_SCHEME).size()) : text;
    if (target.empty()) {
        throw duckdb::InvalidInputException(
            "\"%s\" names no target: after %s comes a device, a file, or memory:<name>", text, VOLUME_SCHEME);
    }
    return target;
}

std::string AllowedTarget(duckdb::ClientContext &context, const Arguments &arguments) {
    std::string target = TargetOf(arguments.Text(0, "target"));
    Sandbox(context).RequireVolume(target);
    return target;
}

} // namespace rawduck
