#include "io/request/io_stats.hpp"

#include "common/text/name_table.hpp"

#include <algorithm>

namespace rawduck {
namespace {

constexpr auto RELAXED = std::memory_order_relaxed;
constexpr uint64_t LINEAR = 8; // values below have a bucket each; 8 buckets per power of two from there on

size_t BucketOf(uint64_t value) {
    if (value < LINEAR) {
        return value;
    }
    int exponent = 63 - __builtin_clzll(value);
    return static_cast<size_t>(exponent - 2) * LINEAR + ((value >> (exponent - 3)) & (LINEAR - 1));
}

uint64_t UpperBoundOf(size_t bucket) {
    if (bucket < LINEAR) {
        return bucket;
    }
    int shift = static_cast<int>(bucket / LINEAR) - 1;
    return ((LINEAR + bucket % LINEAR) << shift) + ((uint64_t(1) << shift) - 1);
}

void RaiseTo(std::atomic<uint64_t> &maximum, uint64_t value) {
    uint64_t seen = maximum.load(RELAXED);
    while (seen < value && !maximum.compare_exchange_weak(seen, value, RELAXED)) {
    }
}

} // namespace

const char *IoOperationName(IoOperation operation) {
    static constexpr NamedValue<IoOperation> NAMES[] = {{IoOperation::READ, "read"},
                                                        {IoOperation::WRITE, "write"},
                                                        {IoOperation::FLUSH, "flush"},
                                                        {IoOperation::DEALLOCATE, "deallocate"}};
    return NameOf(NAMES, operation);
}

void LatencyHistogram::Record(uint64_t nanoseconds) {
    counts_[BucketOf(nanoseconds)].fetch_add(1, RELAXED);
    RaiseTo(max_ns_, nanoseconds);
}

uint64_t LatencyHistogram::Quantile(double quantile) const {
    uint64_t total = 0;
    for (const auto &count : counts_) {
        total += count.load(RELAXED);
    }
    if (total == 0) {
        return 0;
    }
    // The smallest value that at least quantile * total of the values do not exceed.
    double wanted = std::min(std::max(quantile, 0.0), 1.0) * static_cast<double>(total);
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket < counts_.size(); bucket++) {
        uint64_t count = counts_[bucket].load(RELAXED);
        seen += count;
        if (count > 0 && static_cast<double>(seen) >= wanted) {
            return std::min(UpperBoundOf(bucket), MaxNs());
        }
    }
    return MaxNs();
}

std::vector<LatencyHistogram::Bucket> LatencyHistogram::Buckets() const {
    std::vector<Bucket> buckets;
    for (size_t bucket = 0; bucket < counts_.size(); bucket++) {
        if (const uint64_t count = counts_[bucket].load(RELAXED)) {
            buckets.push_back({UpperBoundOf(bucket), count});
        }
    }
    return buckets;
}

void LatencyHistogram::Reset() {
    for (auto &count : counts_) {
        count.store(0, RELAXED);
    }
    max_ns_.store(0, RELAXED);
}

IoRequest::IoRequest(IoStats &stats, IoOperation operation)
    : slot_(stats.slots_[static_cast<size_t>(operation)]), operation_(operation) {
    slot_.requests.fetch_add(1, RELAXED);
}

IoRequest::~IoRequest() {
    const auto add = [](std::atomic<uint64_t> &counter, uint64_t count) {
        if (count > 0) {
            counter.fetch_add(count, RELAXED);
        }
    };
    add(slot_.errors, failed_ ? 1 : 0);
    add(slot_.commands, commands_);
    add(slot_.fua_commands, fua_commands_);
    add(slot_.bytes, bytes_);
    add(slot_.bounce_bytes, bounce_bytes_);
    add(slot_.depth_sum, depth_sum_);
    RaiseTo(slot_.depth_max, depth_max_);
}

void IoRequest::Fail() {
    failed_ = true;
}

void IoRequest::AddCommand(uint64_t bytes, uint64_t depth, uint64_t latency_ns) {
    commands_++;
    bytes_ += bytes;
    depth_sum_ += depth;
    depth_max_ = std::max(depth_max_, depth);
    slot_.latency.Record(latency_ns);
}

void IoRequest::AddFua() {
    fua_commands_++;
}

void IoRequest::AddBounce(uint64_t bytes) {
    bounce_bytes_ += bytes;
}

void IoRequest::AddOfClass(PlacementClass placement_class, uint64_t bytes) {
    slot_.of_class[static_cast<size_t>(placement_class)].fetch_add(bytes, RELAXED);
}

uint64_t IoStats::OfClass(IoOperation operation, PlacementClass placement_class) const {
    return slots_[static_cast<size_t>(operation)].of_class[static_cast<size_t>(placement_class)].load(
        RELAXED);
}

std::vector<LatencyHistogram::Bucket> IoStats::Latencies(IoOperation operation) const {
    return slots_[static_cast<size_t>(operation)].latency.Buckets();
}

IoCounters IoStats::Snapshot(IoOperation operation) const {
    const Slot &slot = slots_[static_cast<size_t>(operation)];
    IoCounters counters;
    counters.requests = slot.requests.load(RELAXED);
    counters.errors = slot.errors.load(RELAXED);
    counters.commands = slot.commands.load(RELAXED);
    counters.fua_commands = slot.fua_commands.load(RELAXED);
    counters.bytes = slot.bytes.load(RELAXED);
    counters.bounce_bytes = slot.bounce_bytes.load(RELAXED);
    counters.depth_sum = slot.depth_sum.load(RELAXED);
    counters.depth_max = slot.depth_max.load(RELAXED);
    counters.latency_p50_ns = slot.latency.Quantile(0.5);
    counters.latency_p99_ns = slot.latency.Quantile(0.99);
    counters.latency_max_ns = slot.latency.MaxNs();
    return counters;
}

void IoStats::Reset() {
    for (auto &slot : slots_) {
        for (auto *counter : {&slot.requests, &slot.errors, &slot.commands, &slot.fua_commands, &slot.bytes,
                              &slot.bounce_bytes, &slot.depth_sum, &slot.depth_max}) {
            counter->store(0, RELAXED);
        }
        for (auto &bytes : slot.of_class) {
            bytes.store(0, RELAXED);
        }
        slot.latency.Reset();
    }
}

} // namespace rawduck
