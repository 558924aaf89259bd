//! Errors of the DuckDB-free layers. The file system layer turns them into DuckDB exceptions.
#pragma once

#include <stdexcept>
#include <string>

namespace rawduck {

enum class ErrorCode {
    IO,          //!< the device or the kernel failed a command
    NOT_FOUND,   //!< no such target, volume or file
    EXISTS,      //!< the name is taken
    NO_SPACE,    //!< the volume is full
    PERMISSION,  //!< the operating system refused access
    LOCKED,      //!< another process or handle holds a conflicting lock
    INVALID,     //!< an argument that can never work
    CORRUPT,     //!< a checksum or an invariant of the on-disk format does not hold
    UNSUPPORTED, //!< valid, but not on this target or by this version
    READ_ONLY,   //!< a write to something opened for reading
    POISONED,    //!< an earlier write or flush failed; the volume refuses all further writes
    INTERRUPTED, //!< somebody has interrupted the query that waited
    DESCRIPTORS //!< no file descriptor is left, so nothing is known of what was to be opened, and nothing was done
};

//! Every message says what was tried, on which target, and what to do next.
class Error : public std::runtime_error {
  public:
    Error(ErrorCode code, const std::string &message) : std::runtime_error(message), code_(code) {}
    ErrorCode Code() const { return code_; }

  private:
    ErrorCode code_;
};

//! "No space left on device (errno 28)": thread-safe, unlike strerror. Of a limit of open files, with what to do.
std::string ErrnoText(int error_number);

//! Whether a call failed because the process or the machine has as many files open as it may. It then says nothing of
//! what was to be opened: whether that is there, in use, or what it holds.
bool IsWantOfDescriptors(int error_number);

//! DESCRIPTORS where the call failed for want of them, otherwise `otherwise`.
ErrorCode CodeOf(int error_number, ErrorCode otherwise);

} // namespace rawduck
