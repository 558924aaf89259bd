//! Starts the helper process of this host, rawduck-osd-helper.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <sys/types.h>

namespace rawduck_ceph {

//! Thread-safe.
class HelperProcess {
  public:
    //! `program`: its file. `directory`: where it listens.
    HelperProcess(std::string program, std::string directory);

    //! Called when nobody listens. Starts the program unless it was started a moment ago. Returns an empty
    //! text while it may be starting, else why it does not run. Does not wait for it.
    std::string Start();

    const std::string &Directory() const { return directory_; }

  private:
    using Clock = std::chrono::steady_clock;
    std::string Spawn();

    const std::string program_;
    const std::string directory_;
    std::mutex mutex_; //!< guards what follows; no other lock is taken while it is held
    pid_t child_ = 0;
    Clock::time_point started_;
    std::string failure_; //!< of the last start
};

} // namespace rawduck_ceph
