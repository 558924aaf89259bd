#include "gpu/ring/host/ring_run.hpp"

#include "common/error.hpp"

#include <algorithm>
#include <set>
#include <system_error>

namespace rawduck::gpu {
namespace {

uint64_t BlocksOf(const Device &device, uint64_t wanted) {
    // All of them must run at once, whatever else the device does later.
    return device.Multiprocessors() == 0 ? wanted : std::min(wanted, device.Multiprocessors());
}

RingOptions Checked(RingOptions options, const std::string &target) {
    constexpr uint64_t UNIT = 512, MOST_BYTES = 1 << 30, MOST = 1 << 16, MOST_THREADS = 1 << 10;
    const auto within = [](uint64_t number, uint64_t most) { return number >= 1 && number <= most; };
    if (options.offsets.empty() || !within(options.read_bytes, MOST_BYTES) ||
        options.read_bytes % UNIT != 0 || !within(options.blocks, MOST) || !within(options.slots, MOST) ||
        !within(options.threads, MOST_THREADS)) {
        throw rawduck::Error(ErrorCode::INVALID,
                             "reading " + target + " for a GPU takes at least one read, of a multiple of " +
                                 std::to_string(UNIT) + " bytes up to " + std::to_string(MOST_BYTES) +
                                 ", 1 to " + std::to_string(MOST_THREADS) + " threads, and 1 to " +
                                 std::to_string(MOST) + " thread blocks and slots");
    }
    return options;
}

Memory Zeroed(Device &device, uint64_t bytes) {
    Memory memory = device.Allocate(bytes);
    device.Fill(memory.Data(), 0, bytes);
    return memory;
}

std::string Seconds(std::chrono::nanoseconds time) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
    return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

} // namespace

RingRun::RingRun(std::shared_ptr<Device> device, std::unique_ptr<BlockIo> io, RingOptions options)
    : device_(std::move(device)), io_(std::move(io)),
      options_(Checked(std::move(options), io_->TargetName())), blocks_(BlocksOf(*device_, options_.blocks)),
      slot_bytes_(AlignUp(options_.read_bytes, PAGE_BYTES)),
      marks_bytes_(AlignUp(options_.slots * (sizeof(RingRequest) + sizeof(RingAnswer)), PAGE_BYTES)),
      data_(device_->Allocate(options_.offsets.size() * options_.read_bytes)),
      nanoseconds_(Zeroed(*device_, options_.offsets.size() * sizeof(u64))),
      multiprocessors_(Zeroed(*device_, blocks_ * sizeof(u64))),
      given_back_(Zeroed(*device_, options_.slots * sizeof(u64))),
      state_(Zeroed(*device_, sizeof(RingState))),
      host_(io_.get(), marks_bytes_ + options_.slots * slot_bytes_) {
    offsets_ = device_->Allocate(options_.offsets.size() * sizeof(u64));
    device_->CopyIn(offsets_.Data(), options_.offsets.data(), offsets_.Size());
    const uint64_t bytes = marks_bytes_ + options_.slots * slot_bytes_;
    pinned_ = device_->Pinner().Pin(host_.Data(), bytes);
    if (!pinned_) {
        throw rawduck::Error(ErrorCode::NO_SPACE,
                             "pinning " + std::to_string(bytes) + " bytes of host memory for " +
                                 device_->Name() + ", to which it writes what it wants to read of " +
                                 io_->TargetName() +
                                 ", failed; let the process lock more memory (ulimit -l), or take smaller "
                                 "reads; a GPU that cannot use addresses of the host cannot do this");
    }
}

RingArguments RingRun::Arguments() {
    RingArguments arguments = {};
    arguments.requests = reinterpret_cast<RingRequest *>(host_.Data());
    arguments.answers = reinterpret_cast<RingAnswer *>(arguments.requests + options_.slots);
    arguments.data = reinterpret_cast<const u8 *>(host_.Data() + marks_bytes_);
    arguments.slots = options_.slots;
    arguments.slot_bytes = slot_bytes_;
    arguments.offsets = reinterpret_cast<const u64 *>(offsets_.Data());
    arguments.reads = options_.offsets.size();
    arguments.read_bytes = options_.read_bytes;
    arguments.state = reinterpret_cast<RingState *>(state_.Data());
    arguments.given_back = reinterpret_cast<u64 *>(given_back_.Data());
    arguments.to = data_.Data();
    arguments.nanoseconds = reinterpret_cast<u64 *>(nanoseconds_.Data());
    arguments.multiprocessors = reinterpret_cast<u64 *>(multiprocessors_.Data());
    arguments.patience_ns = static_cast<u64>(options_.patience.count());
    return arguments;
}

RingRun::~RingRun() {
    EndKernel();
    server_.reset();
    pinned_.reset(); // waits for a kernel that nobody has waited for
}

void RingRun::Start() {
    const RingArguments arguments = Arguments();
    // Before the kernel: whoever runs it may do so in this call.
    server_ = std::make_unique<RingServer>(*io_, arguments, host_.Data() + marks_bytes_, options_.threads);
    std::shared_ptr<Event> ended; // lives until the server has aborted: it waits for emulated blocks
    try {
        ended = device_->AskForReads(arguments, blocks_);
        waiter_ = std::thread([this, ended] {
            std::exception_ptr failure;
            try {
                ended->Wait();
            } catch (...) {
                failure = std::current_exception();
            }
            const std::lock_guard<std::mutex> lock(mutex_);
            device_failure_ = failure;
            is_ended_ = true;
            has_ended_.notify_all();
        });
    } catch (const std::system_error &error) {
        server_->Abort();
        throw rawduck::Error(ErrorCode::IO, "starting threads for reads that " +
                                                std::string(device_->Name()) + " asks for failed: " +
                                                error.what() + "; raise the limit of processes (ulimit -u)");
    } catch (...) {
        server_->Abort();
        throw;
    }
}

void RingRun::EndKernel() noexcept {
    Abort();
    if (waiter_.joinable()) {
        waiter_.join();
    }
}

bool RingRun::EndWithin(std::chrono::milliseconds most) noexcept {
    EndKernel();
    return !server_ || server_->StopWithin(most);
}

void RingRun::Abort() noexcept {
    if (server_) {
        server_->Abort();
    }
}

bool RingRun::Wait(std::chrono::milliseconds most) {
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!has_ended_.wait_for(lock, most, [this] { return is_ended_; })) {
            return false;
        }
    }
    if (waiter_.joinable()) {
        waiter_.join();
    }
    if (device_failure_) {
        std::rethrow_exception(device_failure_);
    }
    ThrowIfEnded();
    return server_->StopWithin(most); // all is read
}

void RingRun::ThrowIfEnded() {
    RingState state;
    device_->CopyOut(&state, state_.Data(), sizeof(state));
    const auto end = static_cast<RingEnd>(state.end);
    if (end == RingEnd::NONE) {
        return;
    }
    if (const std::exception_ptr failure = server_->Failure()) {
        std::rethrow_exception(failure);
    }
    const std::string who = device_->Name(), what = "read " + std::to_string(state.ended_ticket) + " of " +
                                                    std::to_string(options_.offsets.size()) + " (" +
                                                    std::to_string(options_.read_bytes) + " bytes at byte " +
                                                    std::to_string(options_.offsets[state.ended_ticket]) +
                                                    " of " + io_->TargetName() + ")";
    if (end == RingEnd::ABORTED) {
        throw rawduck::Error(ErrorCode::INTERRUPTED, "reads of " + io_->TargetName() + " that " + who +
                                                         " asked for were interrupted at " + what);
    }
    throw rawduck::Error(
        ErrorCode::IO,
        who + " has waited for " + Seconds(options_.patience) + " for " +
            (end == RingEnd::DATA_LATE ? "the processor to serve " : "a free slot of the ring for ") + what +
            ", and its kernel has ended; see whether the target answers (dmesg), and whether the " +
            std::to_string(options_.threads) + " threads that serve it get processors");
}

uint64_t RingRun::MultiprocessorsHeld() const {
    std::vector<u64> of_blocks(blocks_);
    device_->CopyOut(of_blocks.data(), multiprocessors_.Data(), blocks_ * sizeof(u64));
    std::set<u64> held(of_blocks.begin(), of_blocks.end());
    held.erase(0);
    return held.size();
}

} // namespace rawduck::gpu
