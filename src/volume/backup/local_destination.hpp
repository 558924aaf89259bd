//! Restores a stream to an ordinary file, and its logs beside it. All of it or, when the stream is not whole, nothing.
#pragma once

#include "target/system/file_descriptor.hpp"
#include "volume/backup/receiver.hpp"

#include <vector>

namespace rawduck {

class LocalDestination final : public Destination {
  public:
    //! An absolute path.
    explicit LocalDestination(std::string path) : path_(std::move(path)) {}
    ~LocalDestination() override;
    //! Throws Error EXISTS, and INVALID for what is only a difference or the rest of something.
    StreamPosition Begin(const StreamHeader &header) override;
    void Write(const StreamPiece &piece) override;
    void Keep(const StreamPosition &) override {}
    void Finish() override;
    std::string AfterFailure() const override { return ". \"" + path_ + "\" was not made"; }

  private:
    void GiveUpNames() noexcept;
    struct Part {
        std::string path, final_path;
        FileDescriptor fd;
    };
    const std::string path_;
    std::vector<Part> parts_;
};

} // namespace rawduck
