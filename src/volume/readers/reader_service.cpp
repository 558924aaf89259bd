#include "volume/readers/reader_service.hpp"

#include "common/process/fork_generation.hpp"
#include "target/stripe.hpp"
#include "target/system/locked_descriptors.hpp"

#include <algorithm>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>

namespace rawduck {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

//! Readers whose writer has ended have no connection to the next one, which looks for them so often.
constexpr milliseconds SWEEP_INTERVAL{5000};
//! The system closes what a killed reader had open one after the other: its connection perhaps before its lock.
constexpr milliseconds LEAVING_INTERVAL{100};
//! Without a free descriptor nobody can be accepted, and the listener stays ready.
constexpr milliseconds ACCEPT_INTERVAL{100};
//! For so long a name is left to another process; longer than it takes that one to look for it.
constexpr milliseconds YIELD_TIME{3 * ACCEPT_INTERVAL};
//! Whoever has not asked yet may never do so, and anybody can connect.
constexpr size_t SILENT_MAX = 16;
constexpr std::chrono::seconds SILENT_TIME{5};

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
    : target_(std::move(target)), handlers_(std::move(handlers)), fork_generation_(ForkGeneration()),
      listeners_(PartsOf(target_).size()) {}

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
        if (!wake_.IsOpen()) {
            return;
        }
        CloseInChildren(wake_);
        Listen();
        thread_ = std::make_unique<std::thread>([this] { Run(); });
    } catch (const std::exception &) { // of memory, threads or fork handlers: tried again by the next writer
        CloseListeners();
        Close(wake_);
    }
}

// The system closes what a killed writer had open one after the other: its lock perhaps before its socket, which has the name.
void ReaderService::Listen() {
    const std::vector<Target> parts = PartsOf(target_);
    next_listen_ = steady_clock::time_point::max();
    for (size_t i = 0; i < parts.size(); i++) {
        if (!listeners_[i].IsOpen()) {
            FileDescriptor listener = ListenForReaders(parts[i]);
            if (listener.IsOpen()) {
                CloseInChildren(listener);
                listeners_[i] = std::move(listener);
            } else {
                next_listen_ = steady_clock::now() + ACCEPT_INTERVAL;
            }
        }
    }
}

// The one who writes by now looks for them again and again.
void ReaderService::YieldNames() {
    CloseListeners();
    next_listen_ = steady_clock::now() + YIELD_TIME;
}

void ReaderService::CloseListeners() {
    for (FileDescriptor &listener : listeners_) {
        Close(listener);
    }
}

void ReaderService::Stop() {
    if (fork_generation_ != ForkGeneration()) {
        static_cast<void>(thread_.release()); // it runs in the parent, and its descriptors are closed here
        for (FileDescriptor &listener : listeners_) {
            static_cast<void>(listener.Release());
        }
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
    CloseListeners();
    Close(wake_);
}

void ReaderService::Run() {
    Sweep(SWEEP_INTERVAL);
    bool wanted = true;
    while (wanted) {
        try {
            wanted = Wait();
        } catch (const std::exception
                     &) { // of memory, or fork handlers: whoever asked is told nothing, and asks again
            next_sweep_ = steady_clock::now() + LEAVING_INTERVAL;
        }
    }
    for (Connection &connection : connections_) {
        Close(connection.socket);
    }
    connections_.clear();
}

void ReaderService::Sweep(milliseconds next) {
    handlers_.sweep();
    next_sweep_ = steady_clock::now() + next;
}

// By the clock: while somebody asks again and again, every wait ends with an event.
bool ReaderService::Wait() {
    const auto begin = steady_clock::now();
    if (begin >= next_listen_) {
        Listen();
    }
    const bool accepts = begin >= next_accept_;
    std::vector<pollfd> polled;
    for (const Connection &connection : connections_) {
        polled.push_back({connection.socket.Get(), POLLIN, 0});
    }
    const size_t first_listener = polled.size();
    for (const FileDescriptor &listener : listeners_) { // poll() passes over -1
        polled.push_back({accepts ? listener.Get() : -1, POLLIN, 0});
    }
    polled.push_back({wake_.Get(), POLLIN, 0});
    const auto end = std::min({next_sweep_, next_listen_, accepts ? next_sweep_ : next_accept_});
    const auto limit = std::chrono::ceil<milliseconds>(end - begin);
    poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(0, limit.count())));
    if (polled.back().revents != 0) {
        return false;
    }
    bool left = false;
    const auto now = steady_clock::now();
    for (size_t i = connections_.size(); i > 0; i--) {
        Connection &connection = connections_[i - 1];
        const bool silent = !connection.answered && now - connection.since > SILENT_TIME;
        if (silent || (polled[i - 1].revents != 0 && !Serve(connection))) {
            left = left || connection.reads;
            Drop(i - 1);
        }
    }
    for (size_t i = 0; i < listeners_.size(); i++) {
        if (polled[first_listener + i].revents != 0 && listeners_[i].IsOpen()) {
            Accept(listeners_[i]);
        }
    }
    if (left) {
        Sweep(LEAVING_INTERVAL);
    } else if (steady_clock::now() >= next_sweep_) {
        Sweep(SWEEP_INTERVAL);
    }
    return true;
}

void ReaderService::Drop(size_t connection) {
    Close(connections_[connection].socket);
    connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(connection));
}

void ReaderService::Accept(const FileDescriptor &listener) {
    FileDescriptor socket(accept4(listener.Get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.IsOpen()) {
        next_accept_ = steady_clock::now() + ACCEPT_INTERVAL;
        return;
    }
    const auto is_silent = [](const Connection &connection) { return !connection.answered; };
    const auto silent =
        static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), is_silent));
    if (silent >= SILENT_MAX) {
        const auto oldest = std::find_if(connections_.begin(), connections_.end(), is_silent);
        Drop(static_cast<size_t>(oldest - connections_.begin()));
    }
    connections_.push_back(Connection{FileDescriptor(), false, false, steady_clock::now()});
    CloseInChildren(socket);
    connections_.back().socket = std::move(socket);
}

// Once it has its answer a reader sends nothing more: the next event is its end. Others need nothing else, and would take the
// places of readers.
bool ReaderService::Serve(Connection &connection) {
    if (connection.answered) {
        return false;
    }
    const std::optional<WriterRequest> request = ReceiveRequest(connection.socket.Get(), target_);
    if (!request) {
        return false;
    }
    const auto readers = std::count_if(connections_.begin(), connections_.end(),
                                       [](const Connection &other) { return other.reads; });
    connection.answered = true;
    connection.reads = request->kind == WriterRequest::Kind::READ;
    try {
        if (connection.reads && static_cast<size_t>(readers) >= READERS_MAX) {
            throw Error(ErrorCode::LOCKED, target_.name + ": " + std::to_string(READERS_MAX) +
                                               " readers are beside its writer, as many as there may be; "
                                               "detach one of them first");
        }
        return SendAnswer(connection.socket.Get(), handlers_.answer(*request)) && connection.reads;
    } catch (const WriterElsewhere &error) {
        YieldNames();
        SendElsewhere(connection.socket.Get(), error);
    } catch (const Error &error) {
        SendRefusal(connection.socket.Get(), error.Code(), error.what());
    } catch (const std::exception &error) {
        SendRefusal(connection.socket.Get(), ErrorCode::IO,
                    target_.name +
                        ": the process that has the volume open for writing cannot answer: " + error.what());
    }
    return false;
}

} // namespace rawduck
