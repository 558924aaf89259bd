//! Where a stream is written to and read from: a file, a pipe, a socket.
#pragma once

#include "common/interrupted.hpp"
#include "target/directory_entry.hpp"
#include "target/system/file_descriptor.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace rawduck {

class ByteSink {
  public:
    virtual ~ByteSink() = default;
    //! All of it, or throws Error.
    virtual void Write(const void *data, uint64_t length) = 0;
    //! What was written is there to stay, as far as the place can promise that.
    virtual void Finish() = 0;
};

class ByteSource {
  public:
    virtual ~ByteSource() = default;
    //! At most `length` bytes, at least one; 0 only at the end.
    virtual uint64_t Read(void *data, uint64_t length) = 0;
    //! For messages.
    virtual const std::string &Name() const = 0;
};

//! A descriptor of the process: its number is all that is known of it, and it stays open. What waits for a pipe asks
//! `interrupted` now and then, and throws Error INTERRUPTED when it is true. Or a file: a new one, which has no
//! name before it is finished, or loses it where the file system cannot do without.
class DescriptorSink final : public ByteSink {
  public:
    DescriptorSink(int fd, Interrupted interrupted);
    //! Throws Error EXISTS where something has the name.
    DescriptorSink(const std::string &new_file, Interrupted interrupted);
    ~DescriptorSink() override;
    void Write(const void *data, uint64_t length) override;
    void Finish() override;

  private:
    void RequireNoTerminal() const;
    const std::optional<EntryFlush> new_name_; //!< of a new file; made before it
    bool named_ = false;                       //!< the new file has its name already
    FileDescriptor fd_;
    const Interrupted interrupted_;
    const std::string name_;
    bool finished_ = false;
};

class DescriptorSource final : public ByteSource {
  public:
    DescriptorSource(int fd, Interrupted interrupted);
    DescriptorSource(const std::string &file, Interrupted interrupted);
    uint64_t Read(void *data, uint64_t length) override;
    const std::string &Name() const override { return name_; }

  private:
    FileDescriptor fd_;
    const Interrupted interrupted_;
    const std::string name_;
};

} // namespace rawduck
