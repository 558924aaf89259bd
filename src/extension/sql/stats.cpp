//! nvme_stats() and nvme_reset_stats(): what was asked of the devices and how long it took.
#include "extension/file_systems/sandbox.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"
#include "extension/sql/volume_rows.hpp"
#include "volume/names/path.hpp"

#include "io/request/io_stats.hpp"
#include "volume/registry.hpp"

#include <unistd.h>

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

Value Microseconds(uint64_t nanoseconds) {
    return Value::DOUBLE(static_cast<double>(nanoseconds) / 1000.0);
}

//! The counters are those of the process, and another database in it may reach what this one may not.
std::vector<TargetStats> VisibleStats(duckdb::ClientContext &context) {
    const Sandbox sandbox(context);
    std::vector<TargetStats> visible;
    for (auto &target : AllStats()) {
        const bool may_be_a_file = target.target[0] == '/';
        if (sandbox.MaySeeVolume(target.target) ||
            (may_be_a_file && sandbox.MayReachFile(DIRECT_SCHEME + target.target))) {
            visible.push_back(target);
        }
    }
    return visible;
}

LogicalType ClassesType() {
    return LogicalType::MAP(LogicalType::VARCHAR, LogicalType::UBIGINT);
}

//! Flushing and deallocating are of no class.
Value BytesByClass(const IoStats &stats, IoOperation operation) {
    if (operation != IoOperation::READ && operation != IoOperation::WRITE) {
        return Value(ClassesType());
    }
    duckdb::vector<Value> classes, bytes;
    for (size_t i = 0; i < PLACEMENT_CLASS_COUNT; i++) {
        const auto placement_class = static_cast<PlacementClass>(i);
        classes.emplace_back(PlacementClassName(placement_class));
        bytes.push_back(Value::UBIGINT(stats.OfClass(operation, placement_class)));
    }
    return Value::MAP(LogicalType::VARCHAR, LogicalType::UBIGINT, std::move(classes), std::move(bytes));
}

LogicalType LatenciesType() {
    return LogicalType::MAP(LogicalType::DOUBLE, LogicalType::UBIGINT);
}

Value Latencies(const IoStats &stats, IoOperation operation) {
    duckdb::vector<Value> bounds, counts;
    for (const LatencyHistogram::Bucket &bucket : stats.Latencies(operation)) {
        bounds.push_back(Microseconds(bucket.upper_ns));
        counts.push_back(Value::UBIGINT(bucket.count));
    }
    return Value::MAP(LogicalType::DOUBLE, LogicalType::UBIGINT, std::move(bounds), std::move(counts));
}

void AddStats(const std::string &target, const IoStats &stats, Rows &rows) {
    for (int i = 0; i < IO_OPERATION_COUNT; i++) {
        const auto operation = static_cast<IoOperation>(i);
        const IoCounters counters = stats.Snapshot(operation);
        const double depth_mean = counters.commands == 0 ? 0
                                                         : static_cast<double>(counters.depth_sum) /
                                                               static_cast<double>(counters.commands);
        rows.push_back({Value(target), Value(IoOperationName(operation)), Value::BIGINT(getpid()),
                        Value::UBIGINT(counters.requests), Value::UBIGINT(counters.errors),
                        Value::UBIGINT(counters.commands), Value::UBIGINT(counters.fua_commands),
                        Value::UBIGINT(counters.bytes), Value::UBIGINT(counters.bounce_bytes),
                        Value::DOUBLE(depth_mean), Value::UBIGINT(counters.depth_max),
                        Microseconds(counters.latency_p50_ns), Microseconds(counters.latency_p99_ns),
                        Microseconds(counters.latency_max_ns), BytesByClass(stats, operation),
                        Latencies(stats, operation)});
    }
}

Rows StatsRows(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string named = arguments.NamedText("target", "");
    if (!named.empty()) {
        const std::string target = TargetOf(named);
        Sandbox(context).RequireVolume(target);
        return RowsOfVolume(context, target, "nvme_stats");
    }
    Rows rows;
    for (auto &visible : VisibleStats(context)) {
        AddStats(visible.target, *visible.stats, rows);
    }
    return rows;
}

Rows ResetRow(duckdb::ClientContext &context, const Arguments &) {
    for (auto &target : VisibleStats(context)) {
        target.stats->Reset();
    }
    return {{Value::BOOLEAN(true)}};
}

} // namespace

Rows StatsOf(const Volume &volume) {
    Rows rows;
    AddStats(volume.Info().target, volume.Stats(), rows);
    return rows;
}

void RegisterStatsFunctions(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature;
    signature.AddKeywordOnly("target", LogicalType::VARCHAR, Value(LogicalType::VARCHAR));
    RegisterRowFunction(
        loader,
        {"nvme_stats",
         "Requests, commands, bytes and latencies of every target this process has used. target: of one "
         "volume; where "
         "another process has it open for writing, that one's",
         "SELECT * FROM nvme_stats() WHERE operation = 'read'",
         signature,
         {{"target", LogicalType::VARCHAR, "The target"},
          {"operation", LogicalType::VARCHAR, "read, write, flush or deallocate"},
          {"process", LogicalType::BIGINT, "Whose they are: its process ID"},
          {"requests", LogicalType::UBIGINT, "Calls from above"},
          {"errors", LogicalType::UBIGINT, "Of those, failed"},
          {"commands", LogicalType::UBIGINT, "Commands to the device, retries included"},
          {"fua_commands", LogicalType::UBIGINT, "Of those, writes with Force Unit Access"},
          {"bytes", LogicalType::UBIGINT, "Bytes transferred"},
          {"bounce_bytes", LogicalType::UBIGINT, "Of those, copied through an aligned buffer"},
          {"depth_mean", LogicalType::DOUBLE, "Commands in flight on a queue, on average when one was added"},
          {"depth_max", LogicalType::UBIGINT, "The most of them"},
          {"latency_p50_us", LogicalType::DOUBLE, "Median of a command's time, in microseconds"},
          {"latency_p99_us", LogicalType::DOUBLE, "Its 99th percentile"},
          {"latency_max_us", LogicalType::DOUBLE, "Its maximum"},
          {"bytes_by_class", ClassesType(),
           "Of reads and writes: bytes of database (and other files), metadata, wal and temporary"},
          {"latencies", LatenciesType(), "Commands by their time: microseconds at most -> how many"}},
         StatsRows});
    RegisterRowFunction(loader, {"nvme_reset_stats",
                                 "Sets the counters of nvme_stats() to zero",
                                 "CALL nvme_reset_stats()",
                                 duckdb::FunctionSignature(),
                                 {{"reset", LogicalType::BOOLEAN, "true"}},
                                 ResetRow});
}

} // namespace rawduck
