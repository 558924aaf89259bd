#include "gpu/ring/host/ring_server.hpp"

#include "common/clock.hpp"
#include "common/error.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

namespace rawduck::gpu {
namespace {

//! How long to look without a pause: a kernel that has got its data asks for more at once.
constexpr std::chrono::microseconds LOOK_WITHOUT_PAUSE{100};
constexpr std::chrono::microseconds PAUSE{20};

} // namespace

RingServer::RingServer(BlockIo &io, const RingArguments &ring, char *data, uint64_t threads)
    : io_(io), ring_(ring), data_(data), at_a_time_(std::max<uint64_t>(1, ring.slots / threads)) {
    try {
        threads_.reserve(threads);
        while (threads_.size() < threads) {
            threads_.emplace_back([this] { Run(); });
        }
    } catch (const std::bad_alloc &) {
        Join();
        throw;
    } catch (const std::system_error &error) {
        Join();
        throw rawduck::Error(ErrorCode::IO,
                             "starting " + std::to_string(threads) + " threads to serve a GPU's reads of " +
                                 io.TargetName() + " failed: " + error.what() +
                                 "; ask for fewer, or raise the limit of processes (ulimit -u)");
    }
}

RingServer::~RingServer() {
    Join();
}

void RingServer::Abort() noexcept {
    for (u64 slot = 0; slot < ring_.slots; slot++) {
        StoreMark(&ring_.answers[slot].served, RING_ABORTED);
    }
}

bool RingServer::StopWithin(std::chrono::milliseconds most) noexcept {
    is_over_ = true;
    if (!threads_.empty()) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!has_ended_.wait_for(lock, most, [this] { return ended_ == threads_.size(); })) {
            return false;
        }
    }
    Join();
    return true;
}

void RingServer::Join() noexcept {
    is_over_ = true;
    for (std::thread &thread : threads_) {
        thread.join();
    }
    threads_.clear();
}

std::exception_ptr RingServer::Failure() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
}

void RingServer::Run() noexcept {
    try {
        Serve();
    } catch (...) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            failure_ = failure_ ? failure_ : std::current_exception();
        }
        Abort();
    }
    cpu_ns_ += ThreadCpuNs();
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_++;
    has_ended_.notify_all();
}

void RingServer::Serve() {
    for (std::vector<u64> tickets = Take(); !tickets.empty(); tickets = Take()) {
        Request request;
        for (const u64 ticket : tickets) {
            request.segments.push_back(Read(ticket));
        }
        io_.Execute(request);
        for (const u64 ticket : tickets) {
            Publish(ticket);
        }
    }
}

std::vector<u64> RingServer::Take() {
    std::vector<u64> tickets;
    const std::lock_guard<std::mutex> lock(looking_);
    auto idle_since = std::chrono::steady_clock::now();
    while (tickets.empty() && next_ticket_ < ring_.reads && !is_over_) {
        while (tickets.size() < at_a_time_ && next_ticket_ < ring_.reads && IsAskedFor(next_ticket_)) {
            tickets.push_back(next_ticket_++);
        }
        if (tickets.empty() && std::chrono::steady_clock::now() - idle_since > LOOK_WITHOUT_PAUSE) {
            std::this_thread::sleep_for(PAUSE);
        }
    }
    return tickets;
}

bool RingServer::IsAskedFor(u64 ticket) const {
    return LoadMark(&ring_.requests[ticket % ring_.slots].posted) == ticket / ring_.slots + 1;
}

Segment RingServer::Read(u64 ticket) const {
    const RingRequest &request = ring_.requests[ticket % ring_.slots];
    if (request.bytes > ring_.slot_bytes) {
        throw rawduck::Error(ErrorCode::INVALID, "a GPU asks for " + std::to_string(request.bytes) +
                                                     " bytes of " + io_.TargetName() +
                                                     ", and a slot of its ring has " +
                                                     std::to_string(ring_.slot_bytes) + "; please report it");
    }
    Segment segment;
    segment.device_offset = request.offset;
    segment.data = data_ + ticket % ring_.slots * ring_.slot_bytes;
    segment.length = request.bytes;
    return segment;
}

//! But where it is aborted, which stays.
void RingServer::Publish(u64 ticket) noexcept {
    u64 before = ticket / ring_.slots;
    __atomic_compare_exchange_n(&ring_.answers[ticket % ring_.slots].served, &before, before + 1, false,
                                __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

} // namespace rawduck::gpu
