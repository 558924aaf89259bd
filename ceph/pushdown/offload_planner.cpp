#include "ceph/pushdown/offload_planner.hpp"

#include "ceph/files/query_pins.hpp"
#include "ceph/pushdown/decision/class_trial.hpp"
#include "ceph/pushdown/decision/object_estimate.hpp"
#include "ceph/pushdown/feedback/pushdown_feedback.hpp"
#include "ceph/pushdown/plan/parquet_scan.hpp"
#include "ceph/settings/rados_settings.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/parallel/task_scheduler.hpp"

namespace rawduck_ceph {

namespace {

//! Calls in flight until the first reply, where no call has succeeded yet: perhaps none will.
constexpr size_t UNCONFIRMED_IN_FLIGHT = 2;
//! Calls in flight, unless a setting says how many. With four for each OSD, few OSDs wait for work although the
//! objects are not spread evenly. More would only wait in the OSDs, where this client cannot read them instead.
constexpr size_t IN_FLIGHT_PER_OSD = 4;
constexpr size_t IN_FLIGHT_OSDS_UNKNOWN = 16;
//! What reading an object is taken to need where nothing is estimated: OSDs have this time at least.
constexpr double SHARED_READ_OBJECT_S = 5e-3;
//! A query of which an expression has failed in an OSD is read for this time: objects may be replaced.
constexpr std::chrono::minutes FAILURE_COUNTS_FOR{1};

//! The pushed part as people read it.
std::string DescribeRequest(const Request &request) {
    std::string text;
    for (const std::string &output : request.outputs) {
        text += (text.empty() ? "" : ", ") + output;
    }
    text += request.filter.empty() ? "" : " WHERE " + request.filter;
    text += request.group_count > 0 ? " GROUP BY " + std::to_string(request.group_count) + " first" : "";
    text += request.order.empty() ? "" : " ORDER BY " + std::to_string(request.order.size()) + " keys";
    text += request.limit == Request::NO_LIMIT ? "" : " LIMIT " + std::to_string(request.limit);
    return text;
}

bool HasFailed(const std::string &reply_key) {
    const auto failed = PushdownFeedback::OfProcess().failures.Find(reply_key);
    return failed && std::chrono::steady_clock::now() < *failed + FAILURE_COUNTS_FOR;
}

void RequireClass(const CallTarget &target) {
    const std::string reason = target.feedback->classes.UnavailableReason();
    if (!reason.empty()) {
        throw NotPushable{reason};
    }
}

} // namespace

OffloadPlanner::OffloadPlanner(duckdb::ClientContext &context)
    : context_(context), mode_(RadosOffload(context)), pins_(PinsOf(context)) {}

duckdb::unique_ptr<OffloadBindData> OffloadPlanner::Plan(const OffloadCandidate &candidate) {
    const std::string pushed = DescribeRequest(candidate.query.request);
    const CallTarget &first = candidate.targets.front();
    const uint64_t version = pins_->Find(*first.pool, first.object); // pinned when DuckDB opened it
    const std::string reply_key =
        first.pool->KeyOf(first.object) + "@" + std::to_string(version) + ": " + pushed;
    const Decision decision = mode_ == OFFLOAD_AUTO ? Decide(FetchInputs(candidate, reply_key))
                                                    : UnconditionalDecision(*first.pool);
    auto record = LogScan({first.path, candidate.targets.size(), decision.offload, pushed, decision.why});
    if (!decision.offload) {
        ExplainReading(candidate.get, decision.why);
        return nullptr;
    }
    fetched_for_ = nullptr; // the scan will be replaced, and another one may get its address
    auto data = Bind(candidate, decision);
    data->record = std::move(record);
    data->reply_key = reply_key;
    return data;
}

DecisionInputs OffloadPlanner::FetchInputs(const OffloadCandidate &candidate, const std::string &reply_key) {
    const CallTarget &first = candidate.targets.front();
    TryClass(first, pins_);
    RequireClass(first);
    const ObjectMetadata &metadata = MetadataOf(candidate);
    const auto threads = static_cast<size_t>(duckdb::TaskScheduler::GetScheduler(context_).NumberOfThreads());
    const auto &osds = first.pool->Osds();
    DecisionInputs inputs;
    inputs.estimate =
        EstimateScan(ObjectEstimate(context_, candidate.get, metadata), candidate.targets.size(),
                     candidate.query, candidate.rows_out, candidate.rows_known);
    inputs.estimate.any_order = candidate.any_order;
    inputs.speeds = SpeedsOf(*first.feedback->rates, threads, osds);
    inputs.earlier_reply_bytes =
        PushdownFeedback::OfProcess().reply_bytes.Find(reply_key).value_or(REPLY_SIZE_UNKNOWN);
    inputs.has_failed = HasFailed(reply_key);
    if (RadosOffloadCache(context_)) {
        inputs.kept = PushdownFeedback::OfProcess().kept.Find(reply_key).value_or(KeptAnswers());
    }
    if (LinkSpeedMatters(inputs)) {
        MeasureLink(first, metadata);
        inputs.speeds = SpeedsOf(*first.feedback->rates, threads, osds);
    }
    return inputs;
}

const ObjectMetadata &OffloadPlanner::MetadataOf(const OffloadCandidate &candidate) {
    if (fetched_for_ != &candidate.get) {
        fetched_for_ = nullptr;
        metadata_ = FetchMetadata(candidate.targets.front(), *pins_);
        fetched_for_ = &candidate.get;
    }
    return metadata_;
}

Decision OffloadPlanner::UnconditionalDecision(RadosPool &pool) const {
    Decision decision;
    decision.offload = true;
    decision.share = mode_ == OFFLOAD_SHARED;
    decision.read_object_s = SHARED_READ_OBJECT_S;
    decision.why = std::string(RADOS_OFFLOAD) + " = '" + mode_ + "'";
    if (pool.IsErasureCoded()) {
        decision.why += "; pool " + pool.Name() +
                        " is erasure-coded: objects are read where object classes cannot read in such pools";
    }
    return decision;
}

duckdb::unique_ptr<OffloadBindData> OffloadPlanner::Bind(const OffloadCandidate &candidate,
                                                         const Decision &decision) const {
    auto data = duckdb::make_uniq<OffloadBindData>();
    data->targets = candidate.targets;
    const auto &listed = candidate.get.extra_info.total_files;
    data->listed_objects = listed.IsValid() ? listed.GetIndex() : candidate.targets.size();
    data->pins = pins_;
    data->types = candidate.query.types;
    data->plain = candidate.query.plain;
    data->request = candidate.query.request;
    data->request.reply_bytes_max = decision.reply_bytes_max;
    const bool lz4 = decision.lz4 || mode_ == OFFLOAD_FILTERS || RadosOffloadLz4(context_);
    data->request.format = lz4 ? ReplyFormat::CHUNKS_LZ4 : ReplyFormat::CHUNKS;
    data->request.use_cache = RadosOffloadCache(context_);
    data->expects_kept = decision.expects_kept;
    data->limits = LimitsFor(candidate, decision);
    data->any_order = candidate.any_order;
    return data;
}

CallLimits OffloadPlanner::LimitsFor(const OffloadCandidate &candidate, const Decision &decision) const {
    const CallTarget &first = candidate.targets.front();
    CallLimits limits;
    limits.in_flight_max = RadosOffloadInFlight(context_);
    if (limits.in_flight_max == 0) {
        const auto &osds = first.pool->Osds();
        limits.in_flight_max = osds ? osds->up * IN_FLIGHT_PER_OSD : IN_FLIGHT_OSDS_UNKNOWN;
    }
    limits.before_first_reply = decision.probe                          ? 1
                                : first.feedback->classes.IsConfirmed() ? limits.in_flight_max
                                                                        : UNCONFIRMED_IN_FLIGHT;
    if (decision.share) {
        limits.read_object_s = decision.read_object_s;
    }
    return limits;
}

} // namespace rawduck_ceph
