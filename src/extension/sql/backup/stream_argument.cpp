#include "extension/sql/backup/stream_argument.hpp"

#include "extension/file_systems/sandbox.hpp"
#include "extension/sql/backup/stream_objects.hpp"

#include "common/error.hpp"
#include "common/text/text.hpp"

#include <charconv>
#include <cstring>

namespace rawduck {

using duckdb::ClientContext;

namespace {

constexpr const char *DESCRIPTOR_PREFIX = "fd:";

int DescriptorIn(const std::string &stream) {
    int number = -1;
    const char *const begin = stream.data() + std::strlen(DESCRIPTOR_PREFIX), *const end = stream.data() +
                                                                                           stream.size();
    const auto parsed = std::from_chars(begin, end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < 0) {
        throw Error(ErrorCode::INVALID,
                    "\"" + stream +
                        "\" is no descriptor; write fd:0 for the standard input, fd:1 for the "
                        "standard output");
    }
    return number;
}

} // namespace

std::string AllowedLocalPath(duckdb::ClientContext &context, const std::string &path) {
    if (IsVolumePath(path) || path.find("://") != std::string::npos) {
        throw Error(ErrorCode::INVALID,
                    path + ": name an ordinary file, or, of a stream, rados://<pool>/<name>");
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

StreamArgument::StreamArgument(ClientContext &context, const std::string &stream)
    : files_(duckdb::FileSystem::GetFileSystem(context)),
      interrupted_([&context] { return context.IsInterrupted(); }) {
    if (StartsWith(stream, DESCRIPTOR_PREFIX)) {
        fd_ = DescriptorIn(stream);
        Sandbox(context).RequireFile("/dev/fd/" + std::to_string(fd_));
    } else if (IsObjectsPath(stream)) {
        Sandbox(context).RequireFile(stream);
        path_ = stream;
    } else {
        path_ = AllowedLocalPath(context, stream);
    }
}

std::unique_ptr<ByteSink> StreamArgument::OpenSink() const {
    if (IsObjectsPath(path_)) {
        return std::make_unique<ObjectsSink>(files_, path_);
    }
    return fd_ >= 0 ? std::make_unique<DescriptorSink>(fd_, interrupted_)
                    : std::make_unique<DescriptorSink>(path_, interrupted_);
}

std::unique_ptr<ByteSource> StreamArgument::OpenSource() const {
    if (IsObjectsPath(path_)) {
        return std::make_unique<ObjectsSource>(files_, path_);
    }
    return fd_ >= 0 ? std::make_unique<DescriptorSource>(fd_, interrupted_)
                    : std::make_unique<DescriptorSource>(path_, interrupted_);
}

} // namespace rawduck
