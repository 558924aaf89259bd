//! rados_stats() and rados_reset_stats(): the requests of this process to Ceph.
#include "ceph/sql/functions.hpp"

#include "ceph/files/visible.hpp"
#include "ceph/pushdown/feedback/pushdown_feedback.hpp"
#include "ceph/rados/connection/rados_path.hpp"
#include "ceph/rados/pool/rados_stats.hpp"
#include "extension/sql/row_function.hpp"

#include <algorithm>

namespace rawduck_ceph {

using rawduck::Arguments;
using rawduck::RegisterRowFunction;
using rawduck::Rows;

namespace {

using duckdb::LogicalType;
using duckdb::Value;

//! NULL where it is not measured.
Value BytesPerSecond(PoolRates &rates, RadosOperation operation) {
    RunningRate::Cost cost;
    const bool known = operation == RadosOperation::READ   ? rates.reads.TryGet(cost)
                       : operation == RadosOperation::EXEC ? rates.calls.TryGet(cost)
                                                           : false;
    return known && cost.wall_s_per_byte > 0 ? Value::UBIGINT(static_cast<uint64_t>(1 / cost.wall_s_per_byte))
                                             : Value(LogicalType::UBIGINT);
}

auto VisibleStats(duckdb::ClientContext &context) {
    auto pools = AllRadosStats();
    auto hidden = [&](const auto &pool) {
        return !IsVisible(context, RADOS_SCHEME + pool.pool, duckdb::FileType::FILE_TYPE_DIR);
    };
    pools.erase(std::remove_if(pools.begin(), pools.end(), hidden), pools.end());
    return pools;
}

Rows StatsRows(duckdb::ClientContext &context, const Arguments &) {
    Rows rows;
    for (auto &pool : VisibleStats(context)) {
        const auto rates = PushdownFeedback::OfProcess().RatesOf(pool.cluster, pool.pool);
        for (int i = 0; i < RADOS_OPERATION_COUNT; i++) {
            const auto operation = static_cast<RadosOperation>(i);
            auto &counters = pool.stats->Of(operation);
            rows.push_back({Value::UUID(pool.cluster), Value(pool.pool), Value(RadosOperationName(operation)),
                            Value::UBIGINT(counters.requests), Value::UBIGINT(counters.bytes),
                            Value::UBIGINT(counters.errors), BytesPerSecond(*rates, operation)});
        }
    }
    return rows;
}

Rows ResetRow(duckdb::ClientContext &context, const Arguments &) {
    for (auto &pool : VisibleStats(context)) {
        pool.stats->Reset();
    }
    return {{Value::BOOLEAN(true)}};
}

} // namespace

void RegisterRadosStats(duckdb::ExtensionLoader &loader) {
    RegisterRowFunction(loader, {"rados_stats",
                                 "Requests of this process to Ceph, bytes and errors, per pool and operation",
                                 "SELECT * FROM rados_stats() WHERE requests > 0",
                                 duckdb::FunctionSignature(),
                                 {{"cluster", LogicalType::UUID},
                                  {"pool", LogicalType::VARCHAR},
                                  {"operation", LogicalType::VARCHAR},
                                  {"requests", LogicalType::UBIGINT},
                                  {"bytes", LogicalType::UBIGINT},
                                  {"errors", LogicalType::UBIGINT},
                                  {"bytes_per_s", LogicalType::UBIGINT}},
                                 StatsRows});
    RegisterRowFunction(loader, {"rados_reset_stats",
                                 "Sets the counters of rados_stats() to zero",
                                 "CALL rados_reset_stats()",
                                 duckdb::FunctionSignature(),
                                 {{"reset", LogicalType::BOOLEAN}},
                                 ResetRow});
}

} // namespace rawduck_ceph
