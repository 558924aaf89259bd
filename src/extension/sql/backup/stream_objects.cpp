#include "extension/sql/backup/stream_objects.hpp"

#include "common/error.hpp"
#include "common/text/text.hpp"
#include "common/units.hpp"

#include "duckdb/common/error_data.hpp"

#include <algorithm>

namespace rawduck {

using duckdb::FileFlags;

namespace {

constexpr const char *OBJECT_SCHEME = "rados://";
constexpr const char *OBJECT_FILE_SYSTEM = "RadosFileSystem";
constexpr uint64_t OBJECT_BYTES = 16 * MIB;
constexpr size_t NUMBER_DIGITS = 6;

std::string ObjectPath(const std::string &path, uint64_t number) {
    const std::string digits = std::to_string(number);
    return path + "." + std::string(NUMBER_DIGITS - std::min(NUMBER_DIGITS, digits.size()), '0') + digits;
}

//! What the receiver has got is kept after an Error only.
template <class CALL> auto AsError(const std::string &path, CALL &&call) -> decltype(call()) {
    try {
        return call();
    } catch (const duckdb::PermissionException &) {
        throw; // DuckDB's settings
    } catch (const duckdb::InterruptException &) {
        throw Error(ErrorCode::INTERRUPTED, path + ": interrupted");
    } catch (const duckdb::Exception &error) {
        throw Error(ErrorCode::IO, duckdb::ErrorData(error).RawMessage());
    }
}

//! Otherwise the path would be one of the local disk.
void RequireFileSystem(duckdb::FileSystem &files, const std::string &path) {
    const auto there = files.ListSubSystems();
    if (std::find(there.begin(), there.end(), OBJECT_FILE_SYSTEM) == there.end()) {
        throw Error(
            ErrorCode::UNSUPPORTED,
            path + ": rawduck's extension for Ceph is not loaded: rawduck.connect(ceph=True), or LOAD what "
                   "`rawduck extension-path --ceph` prints");
    }
    if (path.back() == '/') {
        throw Error(ErrorCode::INVALID, path + ": give the stream a name behind the last slash");
    }
}

} // namespace

bool IsObjectsPath(const std::string &path) {
    return StartsWith(path, OBJECT_SCHEME);
}

ObjectsSink::ObjectsSink(duckdb::FileSystem &files, std::string path)
    : files_(files), path_(std::move(path)) {
    RequireFileSystem(files_, path_);
    const std::string first = ObjectPath(path_, 0);
    if (AsError(path_, [&] { return files_.FileExists(first); })) {
        throw Error(ErrorCode::EXISTS,
                    first + ": it exists already; a stream replaces nothing, so name another one");
    }
    buffer_.reserve(OBJECT_BYTES);
}

ObjectsSink::~ObjectsSink() {
    for (uint64_t i = 0; !finished_ && i < objects_; i++) {
        try {
            files_.TryRemoveFile(ObjectPath(path_, i));
        } catch (const std::exception &) {
            // There is nobody to report to, and a stream without its end is refused by whoever receives it.
        }
    }
}

void ObjectsSink::Write(const void *data, uint64_t length) {
    const char *bytes = static_cast<const char *>(data);
    while (length > 0) {
        const uint64_t part = std::min<uint64_t>(length, OBJECT_BYTES - buffer_.size());
        buffer_.insert(buffer_.end(), bytes, bytes + part);
        bytes += part;
        length -= part;
        if (buffer_.size() == OBJECT_BYTES) {
            WriteObject();
        }
    }
}

void ObjectsSink::WriteObject() {
    const std::string path = ObjectPath(path_, objects_);
    AsError(path, [&] {
        const auto object =
            files_.OpenFile(path, FileFlags::FILE_FLAGS_WRITE | FileFlags::FILE_FLAGS_FILE_CREATE |
                                      FileFlags::FILE_FLAGS_EXCLUSIVE_CREATE);
        object->Write(buffer_.data(), buffer_.size());
        object->Close();
    });
    objects_++;
    buffer_.clear();
}

void ObjectsSink::Finish() {
    if (!buffer_.empty()) {
        WriteObject();
    }
    finished_ = true;
}

ObjectsSource::ObjectsSource(duckdb::FileSystem &files, std::string path)
    : files_(files), path_(std::move(path)) {
    RequireFileSystem(files_, path_);
    if (!OpenNext()) {
        throw Error(ErrorCode::NOT_FOUND,
                    path_ + ": there is no stream: " + ObjectPath(path_, 0) +
                        " is missing; FROM glob('rados://<pool>/**') lists what is there");
    }
}

bool ObjectsSource::OpenNext() {
    const std::string path = ObjectPath(path_, next_);
    object_ = AsError(path, [&] {
        return files_.OpenFile(path, FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_NULL_IF_NOT_EXISTS);
    });
    next_++;
    return object_ != nullptr;
}

uint64_t ObjectsSource::Read(void *data, uint64_t length) {
    while (object_) {
        const int64_t bytes = AsError(
            object_->path, [&] { return object_->Read(data, std::min<uint64_t>(length, OBJECT_BYTES)); });
        if (bytes > 0) {
            return static_cast<uint64_t>(bytes);
        }
        OpenNext();
    }
    return 0;
}

} // namespace rawduck
