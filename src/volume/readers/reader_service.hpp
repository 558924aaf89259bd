//! The thread that serves readers of other processes while a volume is mounted.
#pragma once

#include "target/target.hpp"
#include "volume/readers/reader_channel.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rawduck {

//! Thread-safe.
class ReaderService {
  public:
    //! Each takes a descriptor of the process. The next one is refused.
    static constexpr size_t READERS_MAX = 500;

    //! Both are called by the thread. `answer` throws what the reader is to be told; `sweep` does not throw: it gives up
    //! what no reader needs any more.
    struct Handlers {
        std::function<std::string(const WriterRequest &)> answer;
        std::function<void()> sweep;
    };
    ReaderService(Target target, Handlers handlers);
    ~ReaderService();

    //! Its thread is made now, if there is none yet, and sweeps first. Without a thread readers find nobody, and
    //! what they left stays until the next start; without a socket until that can be had.
    void Start() noexcept;
    //! Waits until no handler runs. None is called afterwards.
    void Stop();

  private:
    struct Connection {
        FileDescriptor socket;
        bool answered = false, reads = false;
        std::chrono::steady_clock::time_point since; //!< when it was accepted
    };
    void Run();
    //! For one event; false at the end.
    bool Wait();
    //! `next`: when again, at the latest.
    void Sweep(std::chrono::milliseconds next);
    void Drop(size_t connection);
    //! False when it is to be closed.
    bool Serve(Connection &connection);
    void Accept(const FileDescriptor &listener);
    //! Or later, while somebody else has the names.
    void Listen();
    void CloseListeners();
    //! To another process that writes to the volume now.
    void YieldNames();

    const Target target_;
    const Handlers handlers_;
    const uint64_t fork_generation_;
    std::mutex mutex_; //!< guards thread_ and stopped_; no other lock is taken under it
    std::unique_ptr<std::thread> thread_;
    bool stopped_ = false;
    FileDescriptor wake_;                   //!< set before the thread is made
    std::vector<FileDescriptor> listeners_; //!< the thread's, once there is one; of each member
    std::vector<Connection> connections_;   //!< the thread's, as what follows
    std::chrono::steady_clock::time_point next_sweep_, next_listen_, next_accept_;
};

} // namespace rawduck
