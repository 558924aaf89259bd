#include "extension/sql/backup/stream_argument.hpp"

#include "extension/file_systems/sandbox.hpp"

#include "common/error.hpp"
#include "common/text/text.hpp"

#include "duckdb/common/file_system.hpp"

#include <charconv>
#include <cstring>
#include <optional>

namespace rawduck {
namespace {

constexpr const char *DESCRIPTOR_PREFIX = "fd:";

Interrupted InterruptedOf(duckdb::ClientContext &context) {
    return [&context] { return context.IsInterrupted(); };
}

//! Nothing for a path.
std::optional<int> DescriptorIn(duckdb::ClientContext &context, const std::string &stream) {
    if (!StartsWith(stream, DESCRIPTOR_PREFIX)) {
        return std::nullopt;
    }
    int number = -1;
    const char *const begin = stream.data() + std::strlen(DESCRIPTOR_PREFIX), *const end = stream.data() + stream.size();
    const auto parsed = std::from_chars(begin, end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < 0) {
        throw Error(ErrorCode::INVALID, "\"" + stream + "\" is no descriptor; write fd:0 for the standard input, fd:1 for the "
                                                        "standard output");
    }
    Sandbox(context).RequireFile("/dev/fd/" + std::to_string(number));
    return number;
}

} // namespace

std::string AllowedLocalPath(duckdb::ClientContext &context, const std::string &path) {
    if (IsVolumePath(path) || path.find("://") != std::string::npos) {
        throw Error(ErrorCode::INVALID, path + ": name an ordinary file");
    }
    auto &files = duckdb::FileSystem::GetFileSystem(context);
    const std::string expanded = files.ExpandPath(path);
    const std::string absolute = !expanded.empty() && expanded[0] == '/'
                                     ? expanded
                                     : duckdb::FileSystem::GetWorkingDirectory() + "/" + expanded;
    Sandbox(context).RequireFile(absolute);
    return absolute;
}

VolumePath AllowedVolumePath(duckdb::ClientContext &context, const std::string &path) {
    if (!IsVolumePath(path)) {
        throw Error(ErrorCode::INVALID, path + ": not a path on a volume; give nvme://<target>/<file>");
    }
    Sandbox(context).RequireFile(path);
    return SplitVolumePath(path);
}

std::unique_ptr<ByteSink> OpenSink(duckdb::ClientContext &context, const std::string &stream) {
    if (const std::optional<int> fd = DescriptorIn(context, stream)) {
        return std::make_unique<DescriptorSink>(*fd, InterruptedOf(context));
    }
    return std::make_unique<DescriptorSink>(AllowedLocalPath(context, stream), InterruptedOf(context));
}

std::unique_ptr<ByteSource> OpenSource(duckdb::ClientContext &context, const std::string &stream) {
    if (const std::optional<int> fd = DescriptorIn(context, stream)) {
        return std::make_unique<DescriptorSource>(*fd, InterruptedOf(context));
    }
    return std::make_unique<DescriptorSource>(AllowedLocalPath(context, stream), InterruptedOf(context));
}

} // namespace rawduck
