//! The object class's end of the channel to the helper process.
#pragma once

#include "ceph/channel/packets.hpp"
#include "ceph/osd/helper_process.hpp"

#include <atomic>

namespace rawduck_ceph {

//! Thread-safe: every thread has a connection of its own. No function waits longer than WAIT_MS and
//! LATE_MS together, whatever the helper does.
class HelperClient {
  public:
    //! How long a call may wait for its job. Most jobs on an object of 8 to 16 MB take 5 to 20 ms: a call
    //! that waited for all of them would hold its placement group too long, and coming again costs 0.5 ms.
    static constexpr uint32_t WAIT_MS = 4;
    //! How much later than it should the helper may answer: it may have to wait for a processor.
    static constexpr uint32_t LATE_MS = 10;
    //! A helper that answers nothing for this time hangs. For less: the host is busy.
    static constexpr uint32_t HANGS_MS = 300;
    //! How long a helper that hangs is not asked again.
    static constexpr uint32_t SILENT_MS = 1000;
    //! When to come again after a late answer, which is lost.
    static constexpr uint32_t AFTER_LATE_MS = 20;
    //! When to come again while the helper starts.
    static constexpr uint32_t STARTING_MS = 50;

    explicit HelperClient(HelperProcess &process) : process_(process) {}

    struct Answer {
        AnswerPacket packet;
        OwnedFd file; //!< with REPLY
    };
    //! `file`: beside HAND_OVER, -1 with ASK. Does not throw: what is wrong with the helper is a STATUS.
    Answer Call(const CallPacket &packet, int file = -1);

  private:
    bool Connect(OwnedFd &socket);
    //! The helper did not answer, or accepts nobody.
    Answer Late();

    HelperProcess &process_;
    std::atomic<int64_t> silent_until_ms_{0}; //!< of the steady clock
    std::atomic<int64_t> late_since_ms_{0};   //!< the first late answer after the last one in time; 0: none
};

//! A STATUS of the class's own.
HelperClient::Answer StatusAnswer(ReplyStatus status, const std::string &text, uint32_t retry_ms = 0);

} // namespace rawduck_ceph
