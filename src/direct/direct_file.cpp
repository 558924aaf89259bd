#include "direct/direct_file.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "common/memory/aligned_buffer.hpp"
#include "common/scope_exit.hpp"
#include "common/text/text.hpp"
#include "common/units.hpp"
#include "io/open_device.hpp"
#include "target/lock/remove_made.hpp"
#include "target/open_target.hpp"
#include "target/system/posix_lock.hpp"
#include "volume/registry.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rawduck {
namespace {

//! Reading a smaller file past the page cache costs more than it saves there: a second descriptor, looking at
//! the disk, and a ring for each thread. A query reads hundreds of them.
constexpr uint64_t SMALL_FILE_BYTES_MAX = 4 * MIB;

//! Databases and their logs have counters of their own; other files share those of their directory, because
//! spilling and partitioned exports create thousands of files, and counters live as long as the process.
std::shared_ptr<IoStats> StatsOf(const std::string &path, FileKind kind) {
    if (kind == FileKind::DATABASE || kind == FileKind::WAL) {
        // By path, not by inode: every checkpoint starts a new log.
        return StatsFor("file:" + path, path);
    }
    const std::string group = DirectoryOf(path) + (kind == FileKind::TEMP ? "/duckdb_temp_*" : "/*");
    return StatsFor("files:" + group, group);
}

//! As files are called of which a query reads hundreds.
bool IsCalledAsData(const std::string &path) {
    return EndsWith(path, ".parquet") || EndsWith(path, ".csv") || EndsWith(path, ".json");
}

void RequireRegular(const std::string &path, const struct stat &status) {
    if (!S_ISREG(status.st_mode)) {
        throw Error(ErrorCode::INVALID, path + ": direct:// is for regular files, which this is not; for a "
                                               "device format a volume and use nvme://");
    }
}

} // namespace

std::unique_ptr<DirectFile> DirectFile::Open(const std::string &path, const OpenMode &mode,
                                             const MountOptions &options) {
    // What is only read, and has such a name, is no database that stock DuckDB has attached here. If it is nevertheless, a
    // descriptor is kept until one is closed after stock DuckDB has closed its own, and what it lies on is busy as long.
    const bool reads = mode.kind == FileKind::OTHER && !mode.write && mode.lock == OpenMode::Lock::NONE;
    const bool asks_later = reads && IsCalledAsData(path) && !AnyKeptForPosixLocks();
    if (mode.kind != FileKind::TEMP && !asks_later) {
        CheckNoPosixLock(path);
    }
    std::unique_ptr<DirectFile> file(new DirectFile(path, mode, options));
    file->OpenBuffered();
    try {
        if (asks_later) {
            CheckNoPosixLock(path, file->buffered_.Get());
        }
        struct stat status;
        if (fstat(file->buffered_.Get(), &status) != 0) {
            file->ThrowSystemError("look at", errno);
        }
        RequireRegular(path, status);
        file->stats_ = StatsOf(path, mode.kind);
        if (mode.lock != OpenMode::Lock::NONE) {
            file->Lock();
        }
        if (mode.lock == OpenMode::Lock::NONE && mode.write && !file->created_ &&
            mode.kind != FileKind::TEMP) {
            // Released at once: it only checks that nobody has the file locked.
            const TargetLock nobody(file->OpenedTarget(), TargetLock::Mode::EXCLUSIVE);
        }
        if (mode.kind == FileKind::DATABASE) {
            file->Direct(); // a file system without O_DIRECT is reported when the database is attached
        }
        if (mode.truncate) {
            file->Truncate(0);
        }
    } catch (...) {
        if (file->created_ && !file->lock_ && mode.lock != OpenMode::Lock::NONE) {
            RemoveIfUnused(file->buffered_.Get(), path); // it may already belong to another process
        } else if (file->created_ && file->HasItsName()) {
            unlink(path.c_str());
        }
        throw;
    }
    return file;
}

void DirectFile::OpenBuffered() {
    // O_NONBLOCK: opening a FIFO must not wait for its other end. It means nothing for a regular file.
    const int flags = O_NONBLOCK | (!mode_.write ? O_RDONLY : mode_.read ? O_RDWR : O_WRONLY);
    const auto closing = mode_.kind == FileKind::TEMP ? FileDescriptor::Closing::PLAIN
                                                      : FileDescriptor::Closing::KEEPS_POSIX_LOCKS;
    const int attempts = mode_.create ? 100 : 1; // others may create and remove it between our two calls
    int error_number = ENOENT;
    for (int attempt = 0; attempt < attempts && error_number == ENOENT; attempt++) {
        if (!mode_.must_create) {
            buffered_ = FileDescriptor(OpenAboveStreams(path_.c_str(), flags), closing);
            error_number = errno;
            if (buffered_.IsOpen()) {
                return;
            }
        }
        if (mode_.create && error_number == ENOENT && Create(flags, closing)) {
            return;
        }
    }
    ThrowSystemError("open", error_number);
}

// False when there is such a file by now.
bool DirectFile::Create(int flags, FileDescriptor::Closing closing) {
    std::optional<EntryFlush> entry;
    if (mode_.kind == FileKind::DATABASE || mode_.kind == FileKind::WAL) {
        entry.emplace(path_);
    }
    buffered_ = FileDescriptor(
        OpenAboveStreams(path_.c_str(), flags | O_CREAT | O_EXCL, mode_.owner_only ? 0600 : 0666), closing);
    if (!buffered_.IsOpen()) {
        if (errno != EEXIST || mode_.must_create) {
            ThrowNotCreated(errno);
        }
        return false;
    }
    created_ = true;
    name_is_new_ = mode_.kind != FileKind::TEMP;
    if (entry) {
        entry_.emplace(std::move(*entry));
    }
    return true;
}

void DirectFile::ThrowNotCreated(int error_number) const {
    struct stat status;
    if (error_number == EEXIST && stat(path_.c_str(), &status) == 0) {
        RequireRegular(path_, status);
    }
    RequireNoOpenFile(path_);
    ThrowSystemError("create", error_number);
}

//! The open file as a target, whatever its name is now: it may have been renamed, replaced or removed since.
Target DirectFile::OpenedTarget() const {
    struct stat status;
    if (fstat(buffered_.Get(), &status) != 0) {
        ThrowSystemError("look at", errno);
    }
    Target target;
    target.kind = TargetKind::REGULAR_FILE;
    target.name = path_;
    target.path = "/proc/self/fd/" + std::to_string(buffered_.Get());
    target.identity = target.node_identity = IdentityOf(status);
    target.open_descriptor = buffered_.Get();
    if (access(target.path.c_str(), F_OK) != 0) {
        target.path = path_; // there is no /proc: opening it fails when it is another file by now
    }
    return target;
}

bool DirectFile::HasItsName() const {
    struct stat status;
    return stat(path_.c_str(), &status) == 0 && IdentityOf(status) == OpenedTarget().identity;
}

void DirectFile::Lock() {
    const Target opened = OpenedTarget();
    lock_ = std::make_unique<TargetLock>(opened, mode_.lock == OpenMode::Lock::SHARED
                                                     ? TargetLock::Mode::SHARED
                                                     : TargetLock::Mode::EXCLUSIVE);
    RAWDUCK_INVARIANT(lock_->DescriptorOf(opened) >= 0, "the file that is locked is the one that is open");
    // From now on the lock keeps others from replacing the file. Before, somebody else may have held it and
    // replaced the file.
    if (!HasItsName()) {
        throw Error(ErrorCode::IO, path_ +
                                       ": another file took its place, or it was removed, while it was being "
                                       "opened; try again");
    }
    locked_here_.emplace(opened.identity);
}

DirectFile::~DirectFile() = default;

void DirectFile::Close() {
    // No data is buffered here, so there is nothing to report: what was not synced need not be durable.
    direct_.reset();
    locked_here_.reset();
    lock_.reset();
    buffered_ = FileDescriptor();
    entry_.reset();
}

BlockIo &DirectFile::Direct() {
    std::call_once(direct_once_, [&] {
        DeviceOptions device;
        device.engine = options_.engine;
        if (mode_.kind == FileKind::TEMP && EndsWith(path_, ".block")) {
            device.engine = "posix"; // written once and read once: a ring would cost more than it could save
        }
        device.read_only = !mode_.write;
        device.lock = lock_.get();
        device.growing_file = true;
        device.max_transfer_bytes = options_.max_transfer_bytes;
        direct_ = std::make_unique<BlockIo>(OpenDevice(OpenedTarget(), device), options_.io, path_, stats_);
    });
    return *direct_;
}

uint64_t DirectFile::Read(void *data, uint64_t length, uint64_t offset) {
    const uint64_t size = SizeCovering(offset + length);
    if (offset >= size) {
        return 0;
    }
    length = std::min(length, size - offset);
    const bool whole_pages = AlignUp(offset, PAGE_BYTES) + PAGE_BYTES <= offset + length;
    if (whole_pages && mode_.kind != FileKind::WAL && !IsSmall(size)) {
        ReadPages(static_cast<char *>(data), length, offset, size);
    } else {
        BufferedRead(static_cast<char *>(data), length, offset);
    }
    return length;
}

bool DirectFile::IsSmall(uint64_t size) const {
    return mode_.kind == FileKind::OTHER && size <= SMALL_FILE_BYTES_MAX;
}

void DirectFile::ReadPages(char *data, uint64_t length, uint64_t offset, uint64_t size) {
    const uint64_t end = offset + length;
    const uint64_t first = AlignUp(offset, PAGE_BYTES), last = AlignDown(end, PAGE_BYTES);
    // Partly wanted pages are read whole, in the same batch of commands.
    AlignedBuffer edges(2 * PAGE_BYTES);
    Request request;
    request.opcode = Opcode::READ;
    // Without a lock others may write to it.
    request.reread = mode_.kind == FileKind::DATABASE && mode_.lock != OpenMode::Lock::NONE;
    if (offset < first) {
        request.segments.push_back({first - PAGE_BYTES, edges.Data(), PAGE_BYTES});
    }
    request.segments.push_back({first, data + (first - offset), last - first});
    const bool tail_is_whole = last < end && last + PAGE_BYTES <= size;
    if (tail_is_whole) {
        request.segments.push_back({last, edges.Data() + PAGE_BYTES, PAGE_BYTES});
    }
    Direct().Execute(request);
    if (offset < first) {
        memcpy(data, edges.Data() + (PAGE_BYTES - (first - offset)), first - offset);
    }
    if (tail_is_whole) {
        memcpy(data + (last - offset), edges.Data() + PAGE_BYTES, end - last);
    } else if (last < end) {
        BufferedRead(data + (last - offset), end - last, last);
    }
}

void DirectFile::Write(const void *data, uint64_t length, uint64_t offset) {
    CheckWritable();
    auto bytes = static_cast<const char *>(data);
    const uint64_t end = offset + length;
    const uint64_t first = AlignUp(offset, PAGE_BYTES), last = AlignDown(end, PAGE_BYTES);
    if (first >= last || mode_.kind == FileKind::WAL) {
        BufferedWrite(bytes, length, offset);
        return;
    }
    BufferedWrite(bytes, first - offset, offset);
    Direct().Write(first, bytes + (first - offset), last - first);
    BufferedWrite(bytes + (last - offset), end - last, last);
}

uint64_t DirectFile::Append(const void *data, uint64_t length) {
    std::lock_guard<std::mutex> guard(append_mutex_);
    const uint64_t offset = Size();
    Write(data, length, offset);
    return offset;
}

void DirectFile::BufferedRead(char *data, uint64_t length, uint64_t offset) {
    if (length == 0) {
        return;
    }
    const auto read = [&](uint64_t done) {
        const ssize_t bytes =
            pread(buffered_.Get(), data + done, length - done, static_cast<off_t>(offset + done));
        return CheckTransfer(bytes, "read", ENODATA, length, offset);
    };
    stats_->Count(IoOperation::READ, [&](IoRequest &request) {
        for (uint64_t done = 0; done < length;) {
            done += request.RunCommand([&] { return read(done); });
        }
    });
}

void DirectFile::BufferedWrite(const char *data, uint64_t length, uint64_t offset) {
    if (length == 0) {
        return;
    }
    const ScopeExit written([&] { InvalidateRereads(offset, length); }); // also when it fails halfway
    const auto write = [&](uint64_t done) {
        const ssize_t bytes =
            pwrite(buffered_.Get(), data + done, length - done, static_cast<off_t>(offset + done));
        return CheckTransfer(bytes, "write", EIO, length, offset);
    };
    stats_->Count(IoOperation::WRITE, [&](IoRequest &request) {
        for (uint64_t done = 0; done < length;) {
            done += request.RunCommand([&] { return write(done); });
        }
    });
}

// The bytes that pread or pwrite has transferred; 0 when a signal interrupted it.
uint64_t DirectFile::CheckTransfer(ssize_t bytes, const char *operation, int error_of_none, uint64_t length,
                                   uint64_t offset) const {
    const int error_number = bytes < 0 ? errno : error_of_none;
    if (bytes < 0 && error_number == EINTR) {
        return 0;
    }
    if (bytes <= 0) {
        ThrowSystemError(std::string(operation) + " " + std::to_string(length) + " bytes at " +
                             std::to_string(offset) + " of",
                         error_number);
    }
    return static_cast<uint64_t>(bytes);
}

// For writes that bypass BlockIo.
void DirectFile::InvalidateRereads(uint64_t offset, uint64_t length) {
    if (mode_.kind == FileKind::DATABASE) {
        Direct().InvalidateRereads(offset, length);
    }
}

void DirectFile::Sync() {
    if (!mode_.write) {
        return;
    }
    CheckWritable();
    stats_->Count(IoOperation::FLUSH, [&](IoRequest &request) {
        request.RunCommand([&] {
            Flush();
            return 0;
        });
    });
}

void DirectFile::Flush() {
    {
        std::lock_guard<std::mutex> guard(entry_mutex_);
        if (name_is_new_ && !entry_) {
            entry_.emplace(path_); // before anything is flushed: when it throws, nothing has failed
        }
    }
    // After a failed flush the kernel may have dropped the dirty pages, and the next flush would report
    // success.
    const ScopeExit final([&, exceptions = std::uncaught_exceptions()] {
        failed_ = failed_ || std::uncaught_exceptions() > exceptions;
    });
    // Flushes the disk's cache too, and so what was written directly.
    if (fdatasync(buffered_.Get()) != 0) {
        ThrowSystemError("flush", errno);
    }
    std::lock_guard<std::mutex> guard(entry_mutex_);
    if (entry_) {
        entry_->Run(buffered_.Get());
        entry_.reset();
        name_is_new_ = false;
    }
}

void DirectFile::Truncate(uint64_t size) {
    CheckWritable();
    std::lock_guard<std::mutex> guard(size_mutex_);
    if (ftruncate(buffered_.Get(), static_cast<off_t>(size)) != 0) {
        ThrowSystemError("truncate", errno);
    }
    known_size_ = size;
    InvalidateRereads(size, UINT64_MAX - size);
}

bool DirectFile::Deallocate(uint64_t offset, uint64_t length) {
    CheckWritable();
    const ScopeExit deallocated([&] { InvalidateRereads(offset, length); });
    return stats_->Count(IoOperation::DEALLOCATE, [&](IoRequest &request) {
        int error_number = 0;
        const uint64_t done = request.RunCommand([&] {
            const int result = fallocate(buffered_.Get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                         static_cast<off_t>(offset), static_cast<off_t>(length));
            error_number = result == 0 ? 0 : errno;
            return result == 0 ? length : 0;
        });
        // Deallocation is a hint: if it fails, a checkpoint continues. A file system without support is no
        // error.
        if (error_number != 0 && error_number != EOPNOTSUPP && error_number != ENOSYS) {
            request.Fail();
        }
        return done > 0;
    });
}

uint64_t DirectFile::Size() {
    return GetStatus().size;
}

StorageFile::Status DirectFile::GetStatus() {
    struct stat status;
    if (fstat(buffered_.Get(), &status) != 0) {
        ThrowSystemError("look at", errno);
    }
    return StatusOf(status);
}

uint64_t DirectFile::SizeCovering(uint64_t end) {
    // Saves a system call for every read: files shrink only through Truncate.
    uint64_t known = known_size_;
    if (end > known) {
        std::lock_guard<std::mutex> guard(size_mutex_);
        known = Size();
        known_size_ = known;
    }
    return known;
}

void DirectFile::CheckWritable() const {
    if (!mode_.write) {
        throw Error(ErrorCode::READ_ONLY, path_ + ": it is opened for reading only");
    }
    if (fork_generation_ != ForkGeneration()) {
        throw Error(ErrorCode::UNSUPPORTED, path_ +
                                                ": it was opened before fork(), and the parent process may "
                                                "write to it; open it anew in the child");
    }
    if (failed_) {
        throw Error(ErrorCode::POISONED,
                    path_ + ": an earlier flush failed, so what is on disk is unknown; detach "
                            "it, check the disk (dmesg) and attach it again");
    }
}

void DirectFile::ThrowSystemError(const std::string &what, int error_number) const {
    const std::string message = path_ + ": cannot " + what + " the file: " + ErrnoText(error_number);
    switch (error_number) {
    case ENOENT:
    case ENOTDIR:
        throw Error(ErrorCode::NOT_FOUND, message);
    case EEXIST:
        throw Error(ErrorCode::EXISTS, message);
    case EACCES:
    case EPERM:
    case EROFS:
        throw Error(ErrorCode::PERMISSION, message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        throw Error(ErrorCode::NO_SPACE, message);
    default:
        throw Error(CodeOf(error_number, ErrorCode::IO), message);
    }
}

StorageFile::Status StatusOf(const struct stat &status) {
    StorageFile::Status result;
    result.size = static_cast<uint64_t>(status.st_size);
    result.modified_us =
        static_cast<int64_t>(status.st_mtim.tv_sec) * 1000000 + status.st_mtim.tv_nsec / 1000;
    result.version = std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino) + ":" +
                     std::to_string(result.size) + ":" + std::to_string(status.st_mtim.tv_sec) + "." +
                     std::to_string(status.st_mtim.tv_nsec);
    return result;
}

bool LeadsToOpenFile(const std::string &path) {
    const std::string processes = "/proc/";
    std::string start(processes.size(), '\0');
    return readlink(path.c_str(), start.data(), start.size()) == static_cast<ssize_t>(start.size()) &&
           start == processes;
}

void RequireNoOpenFile(const std::string &path) {
    if (LeadsToOpenFile(path)) {
        throw Error(ErrorCode::INVALID, path +
                                            ": it leads to a file that a process has open, which direct:// "
                                            "cannot replace; name the file itself, or leave out direct://");
    }
}

} // namespace rawduck
