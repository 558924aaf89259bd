//! A file on a volume as the DuckDB file handle sees it.
#pragma once

#include "io/storage_file.hpp"

#include "volume/registry.hpp"

#include <memory>

namespace rawduck {

StorageFile::Status StatusOf(const FileInfo &info);

class VolumeFile final : public StorageFile {
  public:
    //! Keeps the volume mounted until it is closed.
    VolumeFile(VolumePin volume, std::unique_ptr<OpenFile> file)
        : volume_(std::move(volume)), file_(std::move(file)) {}

    uint64_t Read(void *data, uint64_t length, uint64_t offset) override {
        return file_->Read(data, length, offset);
    }
    void Write(const void *data, uint64_t length, uint64_t offset) override {
        file_->Write(data, length, offset);
    }
    uint64_t Append(const void *data, uint64_t length) override { return file_->Append(data, length); }
    void Sync() override { file_->Sync(); }
    void Truncate(uint64_t size) override { file_->Truncate(size); }
    bool Deallocate(uint64_t offset, uint64_t length) override { return file_->Deallocate(offset, length); }
    uint64_t Size() override { return file_->Size(); }
    Status GetStatus() override { return StatusOf(file_->Info()); }
    void Close() override { file_->Close(); }

  private:
    // In this order: the file is closed before the volume may be unmounted.
    VolumePin volume_;
    std::unique_ptr<OpenFile> file_;
};

} // namespace rawduck
