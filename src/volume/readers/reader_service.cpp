#include "volume/readers/reader_service.hpp"

#include "common/process/fork_generation.hpp"
#include "target/system/locked_descriptors.hpp"

#include <new>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>

namespace rawduck {

namespace {

//! Readers whose writer has ended have no connection to the next one, which looks for them so often.
constexpr int SWEEP_MS = 10000;
//! The system closes what a killed reader had open one after the other: its connection perhaps before its lock.
constexpr int LEAVING_MS = 100;
constexpr size_t CONNECTIONS_MAX = 1000;

//! A forked child closes it: otherwise readers would take the child for the writer.
void CloseInChildren(const FileDescriptor &descriptor) {
    RegisterLocked(descriptor.Get());
}

void Close(FileDescriptor &descriptor) {
    if (descriptor.IsOpen()) {
        UnregisterLocked(descriptor.Get());
        descriptor = FileDescriptor();
    }
}

} // namespace

ReaderService::ReaderService(Target target, Handlers handlers)
    : target_(std::move(target)), handlers_(std::move(handlers)), fork_generation_(ForkGeneration()) {}

ReaderService::~ReaderService() {
    Stop();
}

void ReaderService::Start() noexcept {
    if (fork_generation_ != ForkGeneration()) {
        return;
    }
    std::lock_guard<std::mutex> guard(mutex_);
    if (thread_ || stopped_) {
        return;
    }
    try {
        wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
        listener_ = ListenForReaders(target_);
        if (!wake_.IsOpen() || !listener_.IsOpen()) {
            Close(listener_);
            return;
        }
        CloseInChildren(listener_);
        CloseInChildren(wake_);
        thread_ = std::make_unique<std::thread>([this] { Run(); });
    } catch (const std::exception &) { // of memory, threads or fork handlers: tried again by the next writer
        Close(listener_);
        Close(wake_);
    }
}

void ReaderService::Stop() {
    if (fork_generation_ != ForkGeneration()) {
        static_cast<void>(thread_.release()); // it runs in the parent, and its descriptors are closed here
        static_cast<void>(listener_.Release());
        static_cast<void>(wake_.Release());
        return;
    }
    std::unique_ptr<std::thread> thread;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        stopped_ = true;
        thread.swap(thread_);
    }
    if (thread) {
        eventfd_write(wake_.Get(), 1);
        thread->join();
    }
    Close(listener_);
    Close(wake_);
}

void ReaderService::Run() {
    handlers_.sweep();
    bool left = false;
    for (;;) {
        std::vector<pollfd> polled{{wake_.Get(), POLLIN, 0}, {listener_.Get(), POLLIN, 0}};
        for (const Connection &connection : connections_) {
            polled.push_back({connection.socket.Get(), POLLIN, 0});
        }
        const int ready = poll(polled.data(), polled.size(), left ? LEAVING_MS : SWEEP_MS);
        if (polled[0].revents != 0) {
            break;
        }
        left = false;
        for (size_t i = connections_.size(); i > 0; i--) {
            Connection &connection = connections_[i - 1];
            if (polled[i + 1].revents != 0 && !Serve(connection)) {
                Close(connection.socket);
                connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i - 1));
                left = true;
            }
        }
        if (polled[1].revents != 0) {
            Accept();
        }
        if (left || ready == 0) {
            handlers_.sweep();
        }
    }
    for (Connection &connection : connections_) {
        Close(connection.socket);
    }
    connections_.clear();
}

void ReaderService::Accept() {
    FileDescriptor socket(accept4(listener_.Get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.IsOpen() && connections_.size() < CONNECTIONS_MAX) {
        connections_.push_back(Connection{std::move(socket), false});
        CloseInChildren(connections_.back().socket);
    }
}

// Once it has its answer a reader sends nothing more: the next event is its end.
bool ReaderService::Serve(Connection &connection) {
    if (connection.answered) {
        return false;
    }
    const std::optional<ReaderRequest> request = ReceiveRequest(connection.socket.Get(), target_);
    if (!request) {
        return false;
    }
    connection.answered = true;
    try {
        return SendAnswer(connection.socket.Get(), handlers_.answer(*request));
    } catch (const Error &error) {
        SendRefusal(connection.socket.Get(), error.Code(), error.what());
    } catch (const std::bad_alloc &) {
        SendRefusal(connection.socket.Get(), ErrorCode::NO_SPACE,
                    target_.name + ": the process that has the volume open for writing is out of memory");
    }
    return false;
}

} // namespace rawduck
