#include "ceph/pushdown/scan/offload_scan.hpp"

#include "ceph/files/query_interrupt.hpp"
#include "ceph/pushdown/feedback/pushdown_feedback.hpp"
#include "ceph/pushdown/scan/join_filters.hpp"
#include "ceph/pushdown/scan/local_query.hpp"
#include "ceph/pushdown/scan/reading_share.hpp"
#include "ceph/query/chunks.hpp"
#include "extension/file_systems/errors.hpp"

#include "duckdb/execution/execution_context.hpp"
#include "duckdb/main/profiler/profiling_node.hpp"
#include "duckdb/parallel/pipeline.hpp"
#include "duckdb/parallel/task_scheduler.hpp"

namespace rawduck_ceph {

using rawduck::Translated;

namespace {

//! Interval of checks for cancellation while waiting for a reply.
constexpr uint32_t CANCEL_CHECK_MS = 100;

struct OffloadGlobalState final : duckdb::GlobalTableFunctionState {
    OffloadGlobalState(duckdb::ClientContext &context, const OffloadBindData &data,
                       duckdb::TableFunctionInitInput &input)
        : request(data.request), targets(data.targets) {
        if (input.filters) {
            AddJoinFilters(context, *input.filters, data.columns, request);
            join_filters = input.filters->Copy();
            const InterruptScope scope(InterruptCheckOf(context));
            Translated([&] {
                targets = TargetsWithMatches(context, *input.filters, data.columns, data.column_types,
                                             data.targets, *data.pins);
            });
            data.record->pruned += data.targets.size() - targets.size();
        }
        const size_t scanned = input.column_indexes.size();
        for (size_t i = 0; i < (input.projection_ids.empty() ? scanned : input.projection_ids.size()); i++) {
            const size_t position = input.projection_ids.empty() ? i : input.projection_ids[i];
            outputs.push_back(data.outputs[input.column_indexes[position].GetPrimaryIndex()]);
        }
        threads = std::min<size_t>(
            targets.size(),
            static_cast<size_t>(duckdb::TaskScheduler::GetScheduler(context).NumberOfThreads()));
        calls = std::make_unique<ObjectCalls>(targets, request, data.limits, data.pins);
    }

    duckdb::idx_t MaxThreads() const override { return std::max<size_t>(threads, 1); }

    Request request;
    std::vector<CallTarget> targets;                         //!< without those that the keys of joins exclude
    duckdb::unique_ptr<duckdb::TableFilterSet> join_filters; //!< null where there are none
    std::vector<size_t> outputs; //!< of the request, for each column of the result
    size_t threads = 1;
    std::unique_ptr<ObjectCalls> calls;
    std::atomic<uint64_t> largest_reply_bytes{0}; //!< of one object
    // Of this execution: the record sums up all executions of the scan, and a recursive query executes it
    // once for each iteration.
    std::atomic<size_t> finished{0}; //!< objects
    std::atomic<size_t> answered{0};
    std::atomic<size_t> cached{0}; //!< of these, with an answer that was kept
    std::atomic<size_t> shared{0};
    std::atomic<size_t> without_class{0}; //!< objects whose OSD has no class that the user may call
};

//! Whether an operator above the scan knows already that there will be no rows: a join with an empty side, say. DuckDB
//! asks such a scan for rows all the same, and drops them before it has evaluated all filters. They must not be
//! evaluated here: an error in them would be the query's.
bool CanHaveOutput(duckdb::ExecutionContext &context) {
    if (!context.pipeline) {
        return true;
    }
    const auto sink = context.pipeline->GetSink();
    for (const duckdb::PhysicalOperator &above : context.pipeline->GetOperators()) {
        if (&above != sink.get() && above.IsSink() && above.sink_state &&
            above.sink_state->state == duckdb::SinkFinalizeType::NO_OUTPUT_POSSIBLE) {
            return false;
        }
    }
    return true;
}

struct OffloadLocalState final : duckdb::LocalTableFunctionState {
    explicit OffloadLocalState(bool can_have_output) : has_output(can_have_output) {}

    const bool has_output; //!< false: what is above the scan needs no rows
    std::unique_ptr<ChunkReader> remote;
    std::unique_ptr<LocalQuery> local;
    duckdb::DataChunk chunk;
    size_t object = 0; //!< of the chunk
};

//! What the OSDs' hosts will probably have kept for the next time. If they had not kept what they were expected to,
//! they do not count on it: the objects may change all the time.
KeptAnswers KeptAfter(const OffloadBindData &data, const OffloadGlobalState &global) {
    KeptAnswers kept;
    kept.expected = data.request.use_cache &&
                    HasMostAnswers(global.targets.size(), global.answered, global.shared) &&
                    global.largest_reply_bytes < KEPT_REPLY_BYTES_MAX &&
                    (!data.expects_kept || 2 * global.cached >= global.answered);
    kept.reply_bytes_max = data.request.reply_bytes_max;
    kept.lz4 = data.request.format == ReplyFormat::CHUNKS_LZ4;
    return kept;
}

//! After each object; with the last one, the largest reply is recorded.
void FinishObject(const OffloadBindData &data, OffloadGlobalState &global) {
    if (++global.finished == global.targets.size() && global.answered > 0) {
        PushdownFeedback::OfProcess().reply_bytes.Store(data.reply_key, global.largest_reply_bytes);
        PushdownFeedback::OfProcess().kept.Store(data.reply_key, KeptAfter(data, global));
    }
}

//! Records a reply that was too large at once.
void NoteReplySize(const OffloadBindData &data, OffloadGlobalState &global, const CallAnswer &answer) {
    uint64_t bytes = answer.answered ? answer.reply.raw_bytes : 0;
    if (answer.reply.status == ReplyStatus::TOO_LARGE) {
        bytes = RefusedReplyBytes(data.request.reply_bytes_max);
        PushdownFeedback::OfProcess().reply_bytes.Store(data.reply_key, bytes);
    }
    uint64_t largest = global.largest_reply_bytes;
    while (bytes > largest && !global.largest_reply_bytes.compare_exchange_weak(largest, bytes)) {
    }
}

//! The class counts as unavailable only when no OSD that was asked executes it.
void RecordAvailability(const OffloadBindData &data, OffloadGlobalState &global, const CallTarget &target,
                        const CallAnswer &answer) {
    if (answer.answered) {
        target.feedback->classes.SetAvailable();
    }
    global.without_class += answer.no_class ? 1 : 0;
    const bool none_has_it = global.without_class + global.shared == global.targets.size();
    if (answer.reply.status == ReplyStatus::CANNOT_READ || (answer.no_class && none_has_it)) {
        target.feedback->classes.SetUnavailable(answer.why);
    }
}

//! Throws when the object has another version than the query has seen before.
void RequirePinnedVersion(const OffloadBindData &data, const CallTarget &target, const CallAnswer &answer) {
    if (answer.replaced) {
        throw duckdb::IOException("%s: %s; run the query again", target.path, answer.why);
    }
    if (answer.answered) {
        Translated([&] { data.pins->Pin(*target.pool, target.object, answer.version); });
    }
}

//! The next object of this thread: ANSWER, TO_READ or NOTHING_LEFT.
Taken TakeObject(duckdb::ClientContext &context, const OffloadBindData &data, OffloadGlobalState &global,
                 OffloadLocalState &local, CallAnswer &answer) {
    if (!data.any_order && !global.calls->ClaimNext(local.object)) {
        return Taken::NOTHING_LEFT;
    }
    for (;;) {
        Taken taken = Taken::NOT_YET;
        if (data.any_order) {
            taken = global.calls->TakeAny(CANCEL_CHECK_MS, answer);
        } else if (global.calls->WaitFor(local.object, CANCEL_CHECK_MS, answer)) {
            taken = Taken::ANSWER;
        }
        if (taken != Taken::NOT_YET) {
            return taken;
        }
        if (InterruptScope::IsInterrupted()) {
            global.calls->Cancel();
            throw duckdb::InterruptException();
        }
    }
}

//! Waits for the next object. False: there are no more.
bool StartNextObject(duckdb::ClientContext &context, const OffloadBindData &data, OffloadGlobalState &global,
                     OffloadLocalState &local) {
    CallAnswer answer;
    const Taken taken = TakeObject(context, data, global, local, answer);
    if (taken == Taken::NOTHING_LEFT) {
        return false;
    }
    if (global.calls->HasFailedExpression()) {
        PushdownFeedback::OfProcess().failures.Store(data.reply_key, std::chrono::steady_clock::now());
    }
    const CallTarget &target = global.targets[answer.target];
    if (taken == Taken::TO_READ) {
        data.record->shared++;
        global.shared++;
        FinishObject(data, global);
        local.local = std::make_unique<LocalQuery>(context, data, target, global.join_filters.get());
        return true;
    }
    RequirePinnedVersion(data, target, answer);
    ScanRecord &record = *data.record;
    record.osd_cpu_us += answer.reply.cpu_us;
    record.osd_read_bytes += answer.reply.read_bytes;
    record.reply_bytes += answer.reply.payload.size();
    const size_t answered = answer.answered ? 1 : 0, cached = answer.reply.cached ? answered : 0;
    record.answered += answered;
    record.cached += cached;
    global.answered += answered;
    global.cached += cached;
    NoteReplySize(data, global, answer);
    FinishObject(data, global);
    RecordAvailability(data, global, target, answer);
    if (answer.answered) {
        local.remote = std::make_unique<ChunkReader>(std::move(answer.reply), data.types);
    } else {
        record.CountFallback(answer.why);
        local.local = std::make_unique<LocalQuery>(context, data, target, global.join_filters.get());
    }
    return true;
}

bool NextChunk(duckdb::ClientContext &context, const OffloadBindData &data, OffloadGlobalState &global,
               OffloadLocalState &local) {
    for (;;) {
        if (local.remote) {
            if (local.remote->Next(local.chunk)) {
                return true;
            }
            local.remote.reset();
        }
        if (local.local) {
            if (local.local->Next(local.chunk)) {
                return true;
            }
            local.local.reset();
        }
        if (!StartNextObject(context, data, global, local)) {
            return false;
        }
    }
}

void Scan(duckdb::ClientContext &context, duckdb::TableFunctionInput &input, duckdb::DataChunk &output) {
    auto &data = input.bind_data->Cast<OffloadBindData>();
    auto &global = input.global_state->Cast<OffloadGlobalState>();
    auto &local = input.local_state->Cast<OffloadLocalState>();
    if (!local.has_output) {
        global.calls->Cancel();
        output.SetChildCardinality(0);
        return;
    }
    const InterruptScope scope(InterruptCheckOf(context));
    do {
        if (!NextChunk(context, data, global, local)) {
            output.SetChildCardinality(0);
            return;
        }
    } while (local.chunk.size() == 0);
    for (size_t i = 0; i < global.outputs.size(); i++) {
        output.data[i].Reference(local.chunk.data[global.outputs[i]]);
    }
    output.CheckCardinality(local.chunk.size());
}

duckdb::InsertionOrderPreservingMap<std::string> Describe(duckdb::TableFunctionToStringInput &input) {
    auto &data = input.bind_data->Cast<OffloadBindData>();
    duckdb::InsertionOrderPreservingMap<std::string> text;
    const std::string left = std::to_string(data.targets.size());
    const bool all = data.targets.size() == data.listed_objects;
    text["Objects"] = left + (all ? "" : " of " + std::to_string(data.listed_objects)) + ", " +
                      data.targets.front().path + " first";
    text["Pushed"] = data.record->outcome.pushed;
    text["Why"] = data.record->outcome.why;
    return text;
}

//! For EXPLAIN ANALYZE.
void DescribeOutcome(duckdb::TableFunctionGetMetricsInput &input) {
    const ScanRecord &record = *input.bind_data->Cast<OffloadBindData>().record;
    input.operator_metrics.AddExtraInfo("Answered by OSDs", std::to_string(record.answered));
    const std::string reasons = record.FallbackText();
    if (!reasons.empty()) {
        input.operator_metrics.AddExtraInfo("Read instead", reasons);
    }
}

} // namespace

duckdb::TableFunction OffloadScan(bool any_order) {
    duckdb::TableFunction function(
        duckdb::Identifier("rados_offload"), {}, Scan, nullptr,
        [](duckdb::ClientContext &context, duckdb::TableFunctionInitInput &input) {
            auto &data = input.bind_data->Cast<OffloadBindData>();
            return duckdb::unique_ptr<duckdb::GlobalTableFunctionState>(
                duckdb::make_uniq<OffloadGlobalState>(context, data, input));
        },
        [](duckdb::ExecutionContext &context, duckdb::TableFunctionInitInput &,
           duckdb::GlobalTableFunctionState *) {
            return duckdb::unique_ptr<duckdb::LocalTableFunctionState>(
                duckdb::make_uniq<OffloadLocalState>(CanHaveOutput(context)));
        });
    function.to_string = Describe;
    function.get_metrics = DescribeOutcome;
    function.projection_pushdown = true;
    function.filter_pushdown = true;
    function.filter_prune = true;
    function.verify_serialization = false;
    if (!any_order) {
        // Preserves the order of objects and of their rows, as read_parquet does. It demands that each thread
        // takes the objects in their order.
        function.get_partition_data = [](duckdb::ClientContext &,
                                         duckdb::TableFunctionGetPartitionInput &input) {
            return duckdb::OperatorPartitionData(input.local_state->Cast<OffloadLocalState>().object);
        };
    }
    return function;
}

} // namespace rawduck_ceph
