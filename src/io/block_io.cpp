#include "io/block_io.hpp"

#include "common/error.hpp"
#include "common/process/fork_generation.hpp"
#include "common/scope_exit.hpp"
#include "common/text/name_table.hpp"
#include "io/queue/request_run.hpp"
#include "io/queue/shared_queues.hpp"
#include "io/queue/thread_queues.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace rawduck {
namespace {

//! Of a pool: as many as threads can run at once, within these bounds.
constexpr size_t MIN_POOL_QUEUES = 2;
constexpr size_t MAX_POOL_QUEUES = 16;

constexpr NamedValue<QueueMode> MODE_NAMES[] = {{QueueMode::SYNC, "sync"},
                                                {QueueMode::SINGLE, "single"},
                                                {QueueMode::POOL, "pool"},
                                                {QueueMode::THREAD, "thread"}};

std::shared_ptr<QueueStrategy> MakeStrategy(std::unique_ptr<Device> device, const BlockIoOptions &options) {
    const uint32_t depth = options.queue_depth;
    switch (options.queue_mode) {
    case QueueMode::SYNC:
        return std::make_shared<ThreadQueues>(std::move(device), 1);
    case QueueMode::SINGLE:
        return std::make_shared<SharedQueues>(std::move(device), depth, 1);
    case QueueMode::POOL: {
        const size_t runnable = std::thread::hardware_concurrency();
        return std::make_shared<SharedQueues>(std::move(device), depth,
                                              std::clamp(runnable, MIN_POOL_QUEUES, MAX_POOL_QUEUES));
    }
    case QueueMode::THREAD:
        break;
    }
    return std::make_shared<ThreadQueues>(std::move(device), depth);
}

//! Leaks queues that a forked child has inherited: their rings and mutexes belong to the parent. They stay
//! reachable, so that leak checkers do not report them.
void Abandon(std::shared_ptr<QueueStrategy> queues) {
    static auto *mutex = new std::mutex;
    static auto *abandoned = new std::vector<std::shared_ptr<QueueStrategy>>;
    std::lock_guard<std::mutex> guard(*mutex);
    abandoned->push_back(std::move(queues));
}

} // namespace

QueueMode ParseQueueMode(const std::string &text) {
    if (const auto mode = FindValue(MODE_NAMES, text)) {
        return *mode;
    }
    throw Error(ErrorCode::INVALID,
                "queue mode '" + text + "' is unknown; known modes: " + ListNames(MODE_NAMES));
}

const char *QueueModeName(QueueMode mode) {
    return NameOf(MODE_NAMES, mode);
}

struct BlockIo::State {
    State(std::unique_ptr<Device> device, const BlockIoOptions &options, std::string name,
          std::shared_ptr<IoStats> io_stats)
        : caps(device->Caps()), capacity_bytes(caps.capacity_bytes),
          queues(MakeStrategy(std::move(device), options)), target_name(std::move(name)),
          stats(std::move(io_stats)), fork_generation(ForkGeneration()),
          placement_mode(options.placement.mode),
          placement(MapPlacement(options.placement, caps.placements, caps.placement_obstacle, target_name)),
          rereads(options.reread_buffer_bytes < RereadBuffer::PIECE_BYTES
                      ? nullptr
                      : std::make_unique<RereadBuffer>(options.reread_buffer_bytes)) {}

    void CheckFork() const {
        if (fork_generation != ForkGeneration()) {
            throw Error(ErrorCode::UNSUPPORTED, target_name +
                                                    ": it was opened before fork(), and its queues belong to "
                                                    "the parent process; open it anew in the child");
        }
    }

    void CheckRange(const char *operation, uint64_t offset, uint64_t length) const {
        auto refuse = [&](const std::string &why) {
            throw Error(ErrorCode::INVALID, target_name + ": " + operation + " of " + std::to_string(length) +
                                                " bytes at byte offset " + std::to_string(offset) + " " +
                                                why);
        };
        if (!IsAligned(offset, caps.lba_size) || !IsAligned(length, caps.lba_size)) {
            refuse("is not a multiple of the LBA size of " + std::to_string(caps.lba_size) + " bytes");
        }
        const uint64_t capacity = capacity_bytes;
        const uint64_t end = capacity == 0 ? INT64_MAX : capacity;
        if (offset > end || length > end - offset) {
            refuse("ends beyond the capacity of " + std::to_string(end) + " bytes");
        }
    }

    void CheckWritable(const char *operation) const {
        if (caps.read_only) {
            throw Error(ErrorCode::READ_ONLY,
                        target_name + ": " + operation +
                            " refused: it is open for reading only; check its permissions, or "
                            "attach it without READ_ONLY");
        }
    }

    const Capabilities caps;
    std::atomic<uint64_t> capacity_bytes;        //!< as it is now, while caps says how it was
    const std::shared_ptr<QueueStrategy> queues; //!< shared with the threads, which may exit later than this
    const std::string target_name;
    const std::shared_ptr<IoStats> stats;
    const uint64_t fork_generation;
    const PlacementRequest::Mode placement_mode;
    const PlacementMap placement;
    const std::unique_ptr<RereadBuffer> rereads; //!< may be null
};

BlockIo::BlockIo(std::unique_ptr<Device> device, BlockIoOptions options, std::string target_name,
                 std::shared_ptr<IoStats> stats) {
    if (options.queue_depth == 0 || options.queue_depth > QUEUE_DEPTH_MAX) {
        throw Error(ErrorCode::INVALID, target_name + ": a queue depth of " +
                                            std::to_string(options.queue_depth) +
                                            " is not possible; give 1 to " + std::to_string(QUEUE_DEPTH_MAX));
    }
    state_ = std::make_unique<State>(std::move(device), options, std::move(target_name), std::move(stats));
}

BlockIo::~BlockIo() {
    if (state_->fork_generation != ForkGeneration()) {
        Abandon(state_->queues);
        return;
    }
    // The device is closed when this returns, even if an
    // exiting thread holds on to the queues for a moment more.
    state_->queues->Close();
}

void BlockIo::Execute(const Request &request) {
    if (request.reread && request.opcode == Opcode::READ && state_->rereads) {
        ReadThroughRereadBuffer(request);
        return;
    }
    Run(request.opcode, request.fua, request.segments.data(), request.segments.size());
}

// Recently read blocks come from the reread buffer.
void BlockIo::ReadThroughRereadBuffer(const Request &request) {
    state_->CheckFork();
    RereadBuffer &rereads = *state_->rereads;
    const uint64_t ticket = rereads.Ticket();
    std::vector<Segment> missing;
    missing.reserve(request.segments.size());
    for (const Segment &segment : request.segments) {
        if (!rereads.Read(segment.device_offset, segment.data, segment.length)) {
            missing.push_back(segment);
        }
    }
    if (missing.empty()) {
        state_->stats->Count(IoOperation::READ, [](IoRequest &) {});
        return;
    }
    Run(Opcode::READ, false, missing.data(), missing.size());
    for (const Segment &segment : missing) {
        rereads.Keep(ticket, segment.device_offset, segment.data, segment.length);
    }
}

void BlockIo::Read(uint64_t device_offset, void *data, uint64_t length, PlacementClass placement) {
    Segment segment{device_offset, static_cast<char *>(data), length, placement};
    Run(Opcode::READ, false, &segment, 1);
}

void BlockIo::Write(uint64_t device_offset, const void *data, uint64_t length, PlacementClass placement) {
    // A write command only reads from its memory.
    Segment segment{device_offset, static_cast<char *>(const_cast<void *>(data)), length, placement};
    Run(Opcode::WRITE, false, &segment, 1);
}

void BlockIo::Run(Opcode opcode, bool fua, const Segment *segments, size_t segment_count) {
    State &state = *state_;
    state.CheckFork();
    const bool reads = opcode == Opcode::READ;
    const char *name = reads ? "read" : "write";
    if (!reads) {
        state.CheckWritable(name);
    }
    if (fua && !state.caps.fua) {
        throw Error(ErrorCode::INVALID, state.target_name + ": engine '" + state.caps.engine +
                                            "' takes no writes with FUA here; flush after them instead");
    }
    for (size_t i = 0; i < segment_count; i++) {
        state.CheckRange(name, segments[i].device_offset, segments[i].length);
        if (!segments[i].data && segments[i].length > 0) {
            throw Error(ErrorCode::INVALID, state.target_name + ": " + name + " without a buffer");
        }
    }
    // A write invalidates its range in the reread buffer, whatever its outcome. Spilled data need not: its
    // space is not read through the buffer before something else has been written there.
    const ScopeExit overwritten([&] {
        for (size_t i = 0; !reads && i < segment_count; i++) {
            if (segments[i].placement != PlacementClass::TEMPORARY) {
                InvalidateRereads(segments[i].device_offset, segments[i].length);
            }
        }
    });
    state.stats->Count(reads ? IoOperation::READ : IoOperation::WRITE, [&](IoRequest &request) {
        QueueLease lease = state.queues->Acquire();
        try {
            RequestRun(
                *lease.queue, state.caps, request, state.target_name,
                {opcode, state.placement, fua && state.caps.volatile_write_cache, segments, segment_count})
                .Run();
        } catch (...) {
            if (lease.queue->broken) {
                state.queues->Discard(lease);
            }
            throw;
        }
        for (size_t i = 0; i < segment_count; i++) {
            request.AddOfClass(segments[i].placement, segments[i].length);
        }
    });
}

void BlockIo::Flush() {
    state_->CheckFork();
    if (!state_->caps.volatile_write_cache) {
        return;
    }
    state_->stats->Count(IoOperation::FLUSH, [&](IoRequest &request) {
        request.RunCommand([&] {
            state_->queues->GetDevice().Flush();
            return 0;
        });
    });
}

bool BlockIo::Register(void *memory, uint64_t bytes) {
    state_->CheckFork();
    return state_->caps.registered_memory &&
           state_->queues->GetDevice().Register(memory, bytes, MemoryNeed::SPARE);
}

void BlockIo::Forget(void *memory) {
    if (state_->fork_generation == ForkGeneration()) {
        state_->queues->GetDevice().Forget(memory);
    }
}

const char *BlockIo::PinnedMemory(uint64_t device_offset, uint64_t &length, MemoryPinner &pinner) {
    state_->CheckFork();
    state_->CheckRange("read", device_offset, length);
    return state_->queues->GetDevice().PinnedMemory(device_offset, length, pinner);
}

bool BlockIo::Deallocate(const std::vector<DeviceRange> &ranges) {
    state_->CheckFork();
    state_->CheckWritable("deallocate");
    uint64_t bytes = 0;
    for (const DeviceRange &range : ranges) {
        state_->CheckRange("deallocate", range.device_offset, range.length);
        bytes += range.length;
    }
    if (!state_->caps.deallocate || bytes == 0) {
        return false;
    }
    const ScopeExit deallocated([&] {
        for (const DeviceRange &range : ranges) {
            InvalidateRereads(range.device_offset, range.length);
        }
    });
    return state_->stats->Count(IoOperation::DEALLOCATE, [&](IoRequest &request) {
        return request.RunCommand(
                   [&] { return state_->queues->GetDevice().DeallocateRanges(ranges) ? bytes : 0; }) > 0;
    });
}

void BlockIo::InvalidateRereads(uint64_t device_offset, uint64_t length) {
    if (state_->rereads) {
        state_->rereads->Invalidate(device_offset, length);
    }
}

void BlockIo::BeginWriting() {
    state_->CheckFork();
    state_->queues->GetDevice().BeginWriting();
}

std::vector<DeviceMember> BlockIo::Members() const {
    state_->CheckFork();
    return state_->queues->GetDevice().Members();
}

const Capabilities &BlockIo::Caps() const {
    return state_->caps;
}

uint64_t BlockIo::CapacityBytes() const {
    return state_->capacity_bytes;
}

uint64_t BlockIo::RefreshCapacity() {
    state_->CheckFork();
    state_->capacity_bytes = state_->queues->GetDevice().CurrentCapacity();
    return state_->capacity_bytes;
}

const PlacementMap &BlockIo::Placement() const {
    return state_->placement;
}

std::string BlockIo::PlacementText() const {
    if (state_->placement_mode == PlacementRequest::Mode::OFF) {
        return "off: nvme_placement says so";
    }
    const std::string text = state_->placement.Text();
    return text.empty() ? "off: " + state_->caps.placement_obstacle : text;
}

std::string BlockIo::EngineReason() const {
    const std::string shortage = state_->queues->Supply().Shortage();
    return state_->caps.engine_reason +
           (shortage.empty() ? "" : "; threads have shared queues, or waited for each command: " + shortage);
}

const std::string &BlockIo::TargetName() const {
    return state_->target_name;
}

uint64_t BlockIo::RereadBytes() const {
    return state_->rereads ? state_->rereads->HeldBytes() : 0;
}

RereadCounters BlockIo::Rereads() const {
    return state_->rereads ? state_->rereads->Counters() : RereadCounters();
}

uint64_t BlockIo::BounceBytes() const {
    return state_->queues->Supply().BounceBytes();
}

IoStats &BlockIo::Stats() const {
    return *state_->stats;
}

} // namespace rawduck
