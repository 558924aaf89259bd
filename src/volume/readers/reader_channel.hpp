//! Between a reader and the process that has the volume open for writing: packets through a socket that is named by the
//! target. Processes in another network namespace do not find it.
#pragma once

#include "common/error.hpp"
#include "common/interrupted.hpp"
#include "target/lock/reader_lock.hpp"
#include "target/system/file_descriptor.hpp"
#include "target/target.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace rawduck {

//! What a process asks the one that has the volume open for writing.
struct WriterRequest {
    enum class Kind : uint64_t {
        READ = 1,      //!< keep a file for a reader, and say where it lies
        DESCRIBE,      //!< say what SQL functions would say of the volume
        SNAPSHOT,      //!< and what follows: change the volume, for somebody who may write to the target
        CLONE,         //!<
        DROP_SNAPSHOT, //!<
        REMOVE,        //!< a file that is no snapshot; of a database its logs, too
        RENAME,        //!< a file; of a database its logs, too
        LIST,          //!< and what follows: say what is there. All files below a directory
        IDENTIFY       //!< which file has that name now
    };
    Kind kind = Kind::READ;
    //! READ: of the byte that the reader has locked. SNAPSHOT, CLONE: when it was asked for, by which what is made is known
    //! again (0: unknown). RENAME: 1 if it may replace what has the name.
    uint64_t number = 0;
    std::string subject; //!< the file, the directory or the function
    std::string
        argument; //!< SNAPSHOT: its name; CLONE: the new file; RENAME: the new name; LIST: which of them, below
};

//! What LIST may be asked for beside LATEST, which is what can be read so; with nothing said it is all files.
constexpr const char *LIST_NO_SNAPSHOTS = "files";
constexpr const char *LIST_NAMED = "snapshots"; //!< with those snapshots that users have named

//! Whether it changes the volume: for somebody who may write to the target.
bool ChangesVolume(WriterRequest::Kind kind);

//! That nothing was answered, in contrast to what the writer refuses.
class Unanswered final : public Error {
  public:
    enum class Reason {
        NOT_ASKED, //!< whoever listens is not trusted
        TOO_LATE,  //!< it is stopped, or takes long, and may do it yet
        ENDED      //!< it has ended, and what it was asked to do may be done; or it does not write any more
    };
    Unanswered(Reason reason_p, ErrorCode code, const std::string &message)
        : Error(code, message), reason(reason_p) {}
    const Reason reason;
};

//! Of whoever is asked, when by now another process writes to the volume: that one is to be asked.
class WriterElsewhere final : public Error {
  public:
    explicit WriterElsewhere(const std::string &message) : Error(ErrorCode::LOCKED, message) {}
};

//! As long as it is there the writer knows that the reader is. Closing it makes the writer look for the lock.
using ReaderConnection = FileDescriptor;

struct WriterAnswer {
    ReaderConnection connection;
    std::string text;
};
//! What the writer answers, and the connection; empty when nobody listens. `descriptor`: of the target, open for reading, and
//! for writing when it is to change something. Throws the Error with which the writer refuses, Unanswered when it does not answer
//! in time (LOCKED) or somebody else listens in its place (PERMISSION), INVALID for names that no file can have, or INTERRUPTED: also
//! when a signal comes to this thread and no answer, since what a signal means is often found out only when this returns.
std::optional<WriterAnswer> AskWriter(const Target &target, int descriptor, const WriterRequest &request,
                                      const Interrupted &interrupted = nullptr);

//! The writer's side. A closed descriptor where the name is taken, or there is none to be had. `part`: the target, or a member
//! of it, since whoever asks may know no more than one.
FileDescriptor ListenForReaders(const Target &part);
//! Of a packet that has arrived: empty unless it is a request of somebody who has the target, or a member of it, open, and
//! waits for the answer.
std::optional<WriterRequest> ReceiveRequest(int connection, const Target &target);
//! Returns whether all was sent: a reader that does not take it is left behind.
bool SendAnswer(int connection, const std::string &answer);
bool SendRefusal(int connection, ErrorCode code, const std::string &message);
//! As if this process had ended.
bool SendElsewhere(int connection, const WriterElsewhere &error);

} // namespace rawduck
