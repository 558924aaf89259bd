#include "ceph/helper/worker/object_file_system.hpp"

namespace rawduck_ceph {

namespace {

class ObjectHandle final : public duckdb::FileHandle {
  public:
    using FileHandle::FileHandle;
    void Close() override {}
};

} // namespace

ObjectFileSystem::Mount::Mount(ObjectFileSystem &files, ObjectSource &object) : files_(files) {
    std::lock_guard<std::mutex> lock(files.mutex_);
    path_ = "object-" + std::to_string(files.next_++);
    files.mounted_[path_] = {&object, std::this_thread::get_id()};
}

ObjectFileSystem::Mount::~Mount() {
    std::lock_guard<std::mutex> lock(files_.mutex_);
    files_.mounted_.erase(path_);
}

ObjectFileSystem::Mounted &ObjectFileSystem::Find(const std::string &path) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = mounted_.find(path);
    if (found == mounted_.end()) {
        throw duckdb::PermissionException("there is no file '%s': only the object itself can be read", path);
    }
    if (found->second.thread != std::this_thread::get_id()) {
        throw duckdb::InternalException("an object is read on another thread than its operation's");
    }
    return found->second; // only this thread erases it, and references into the map stay valid
}

duckdb::unique_ptr<duckdb::FileHandle> ObjectFileSystem::OpenFile(const std::string &path,
                                                                  duckdb::FileOpenFlags flags,
                                                                  duckdb::optional_ptr<duckdb::FileOpener>) {
    Find(path);
    if (flags.OpenForWriting()) {
        throw duckdb::PermissionException("an object can only be read by a pushed query");
    }
    return duckdb::make_uniq<ObjectHandle>(*this, path, flags);
}

void ObjectFileSystem::Read(duckdb::FileHandle &handle, void *buffer, int64_t nr_bytes,
                            duckdb::idx_t location) {
    Mounted &mounted = Find(handle.path);
    const uint64_t size = mounted.object->Size();
    const uint64_t length = static_cast<uint64_t>(nr_bytes);
    if (nr_bytes < 0 || location > size || length > size - location) {
        throw duckdb::IOException("a read of %lld bytes at %llu lies outside the object of %llu bytes",
                                  nr_bytes, location, size);
    }
    mounted.object->Read(location, length, static_cast<char *>(buffer));
}

int64_t ObjectFileSystem::GetFileSize(duckdb::FileHandle &handle) {
    return static_cast<int64_t>(Find(handle.path).object->Size());
}

duckdb::timestamp_t ObjectFileSystem::GetLastModifiedTime(duckdb::FileHandle &) {
    return duckdb::timestamp_t::epoch(); // the path is new for each request, so no cache depends on it
}

duckdb::FileMetadata ObjectFileSystem::Stats(duckdb::FileHandle &handle) {
    duckdb::FileMetadata metadata;
    metadata.file_size = GetFileSize(handle);
    metadata.last_modification_time = GetLastModifiedTime(handle);
    metadata.file_type = duckdb::FileType::FILE_TYPE_REGULAR;
    return metadata;
}

bool ObjectFileSystem::FileExists(const std::string &path, duckdb::optional_ptr<duckdb::FileOpener>) {
    std::lock_guard<std::mutex> lock(mutex_);
    return mounted_.count(path) != 0;
}

duckdb::vector<duckdb::OpenFileInfo> ObjectFileSystem::Glob(const std::string &path,
                                                            duckdb::FileOpener *opener) {
    duckdb::vector<duckdb::OpenFileInfo> found;
    if (FileExists(path, opener)) {
        found.emplace_back(path);
    }
    return found;
}

} // namespace rawduck_ceph
