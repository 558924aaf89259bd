#include "volume/mount/open_file.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"
#include "volume/mount/volume_state.hpp"
#include "volume/names/file_name.hpp"

#include <exception>

namespace rawduck {

namespace {

//! Runs a step of closing; the first failure is kept, and the other steps still run.
template <class STEP> void Attempt(std::exception_ptr &failure, STEP &&step) {
    try {
        step();
    } catch (...) {
        if (!failure) {
            failure = std::current_exception();
        }
    }
}

} // namespace

OpenFile::OpenFile(std::shared_ptr<VolumeState> volume, std::shared_ptr<File> file, OpenMode mode)
    : volume_(std::move(volume)), file_(std::move(file)), mode_(mode) {}

OpenFile::~OpenFile() {
    try {
        Close();
    } catch (const std::exception &) {
        // Nothing is lost that was promised: what was not synced is not durable, and a failed write or flush
        // of the log has poisoned the volume, which the next operation on it reports.
    }
}

uint64_t OpenFile::Read(void *data, uint64_t length, uint64_t offset) {
    return read_ahead_.Read(*file_, static_cast<char *>(data), length, offset);
}

void OpenFile::BeginWrite() {
    read_ahead_.Drop();
    if (!mode_.write) {
        throw Error(ErrorCode::READ_ONLY,
                    volume_->target.name + ": \"" + file_->Name() + "\" is open for reading only");
    }
    if (file_->IsTemp() && TemporaryNameOf(file_->Name()) == TemporaryName::OWNER) {
        throw Error(ErrorCode::UNSUPPORTED,
                    volume_->target.name + ": \"" + file_->Name() +
                        "\" is the name of the mark that DuckDB sets beside its temporary "
                        "files, which stays empty; write to another name");
    }
    const std::string poisoned = volume_->log.Poisoned();
    if (!poisoned.empty()) {
        throw Error(ErrorCode::POISONED,
                    volume_->target.name + ": cannot write to \"" + file_->Name() +
                        "\": the volume takes no more writes after an earlier failure (" + poisoned + ")");
    }
}

void OpenFile::ReadRanges(const std::vector<Range> &ranges) {
    file_->ReadRanges(ranges);
}

std::vector<StorageFile::MemoryPiece> OpenFile::Pin(const std::vector<Range> &ranges, MemoryPinner &pinner,
                                                    std::unique_ptr<Hold> &hold) {
    return file_->Pin(ranges, pinner, hold);
}

void OpenFile::Write(const void *data, uint64_t length, uint64_t offset) {
    BeginWrite();
    file_->Write(static_cast<const char *>(data), length, offset);
}

uint64_t OpenFile::Append(const void *data, uint64_t length) {
    BeginWrite();
    return file_->Append(static_cast<const char *>(data), length);
}

void OpenFile::Sync() {
    if (mode_.write) {
        BeginWrite();
        file_->Sync();
    }
}

// DuckDB gives a file, at a checkpoint, the size that it has once all blocks are written that were given out: some may not be
// yet. It is written to there or not at all.
void OpenFile::Truncate(uint64_t size) {
    BeginWrite();
    if (size <= file_->Size()) {
        file_->Truncate(size);
    }
}

bool OpenFile::Deallocate(uint64_t offset, uint64_t length) {
    BeginWrite();
    return file_->Deallocate(offset, length);
}

uint64_t OpenFile::Size() {
    return file_->Size();
}

FileInfo OpenFile::Info() const {
    return file_->Info();
}

FileLayout OpenFile::Layout() const {
    return file_->Layout();
}

StorageFile::Status OpenFile::GetStatus() {
    return StatusOf(file_->Info());
}

void OpenFile::Close() {
    if (!file_) {
        return;
    }
    read_ahead_.Drop();
    const std::shared_ptr<File> file = std::move(file_);
    const std::shared_ptr<VolumeState> volume = std::move(volume_);
    VolumeState &state = *volume;
    std::exception_ptr failure;
    bool last_writer = false;
    if (mode_.write) {
        std::unique_lock<std::shared_mutex> guard(state.names_mutex);
        RAWDUCK_INVARIANT(file->writers > 0, "every writer is counted");
        last_writer = --file->writers == 0;
        if (last_writer && mode_.gone_unless_synced && !file->Published() && !file->Removed()) {
            Attempt(failure, [&] { state.QueueRemove(state.names.find(file->Name())); });
        }
    }
    if (last_writer && file->Removed()) {
        Attempt(failure, [&] { file->GiveBackReservation(); });
    } else if (last_writer) {
        Attempt(failure, [&] { file->Sync(); });
        Attempt(failure, [&] { file->ReleaseReservation(); });
    }
    std::vector<Extent> freed;
    {
        std::unique_lock<std::shared_mutex> guard(state.names_mutex);
        RAWDUCK_INVARIANT(file->handles > 0 && state.open_handles > 0, "every handle is counted");
        RAWDUCK_INVARIANT(mode_.lock != OpenMode::Lock::SHARED || file->shared_locks > 0,
                          "every lock of a handle is counted");
        file->exclusive_lock = file->exclusive_lock && mode_.lock != OpenMode::Lock::EXCLUSIVE;
        file->shared_locks -= mode_.lock == OpenMode::Lock::SHARED ? 1 : 0;
        file->in_place -= mode_.in_place ? 1 : 0;
        state.open_handles--;
        if (--file->handles == 0 && file->Removed()) {
            state.removed_files.erase(file);
            // Without memory for it the next mount finds this space again.
            Attempt(failure, [&] { freed = file->TakeExtents(); });
        }
    }
    if (file->IsTemp()) {
        state.context.FreeTemporary(freed);
    } else if (!freed.empty()) {
        // Free only once the record that removed the file is durable.
        Attempt(failure, [&] { state.log.Commit(state.log.Queue({}, std::move(freed))); });
    }
    if (mode_.write) {
        Attempt(failure, [&] { state.EndWrite(); });
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

StorageFile::Status StatusOf(const FileInfo &info) {
    StorageFile::Status status;
    status.size = info.size;
    status.modified_us = info.modified_us;
    const uint64_t place = info.extents.empty() ? 0 : info.extents[0].device_offset;
    status.version =
        std::to_string(info.size) + ":" + std::to_string(info.modified_us) + ":" + std::to_string(place);
    return status;
}

} // namespace rawduck
