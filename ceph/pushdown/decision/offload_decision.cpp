#include "ceph/pushdown/decision/offload_decision.hpp"

#include "ceph/pushdown/feedback/processor_quota.hpp"

#include <algorithm>
#include <cstdio>

namespace rawduck_ceph {

namespace {

//! Without measurements, replies must be this many times smaller than the columns: the OSDs' work is not
//! free, and estimates are rough.
constexpr uint64_t REDUCTION_MIN = 2;
//! Replies of this size are never too large, however small the columns are.
constexpr uint64_t SMALL_REPLY_BYTES = 16 * 1024;
//! Expected times that differ by less than this factor do not decide.
constexpr double SPEEDUP_MIN = 1.2;
//! Decoding and filtering on one processor: assumed until OSDs were measured.
constexpr double ASSUMED_CPU_S_PER_BYTE = 6e-9;
//! Opening the object and planning the query, whatever its size.
constexpr double CALL_OVERHEAD_S = 1e-3;
//! Scans of fewer bytes are read where nothing was measured: at 1 Gbit/s that takes 8 ms.
constexpr uint64_t SMALL_SCAN_BYTES = 1024 * 1024;
//! Compressed replies arrive sooner on links slower than 250 MB/s.
constexpr double LZ4_LINK_S_PER_BYTE = 4e-9;
//! Compressed by uncompressed size of DuckDB's vectors, roughly.
constexpr double LZ4_RATIO = 0.5;
//! Of a VARCHAR, whose length is not known before it is read.
constexpr uint64_t VARCHAR_BYTES = 20;

std::string FormatBytes(uint64_t bytes) {
    return bytes < 10 * 1024          ? std::to_string(bytes) + " bytes"
           : bytes < 10 * 1024 * 1024 ? std::to_string(bytes / 1024) + " KiB"
                                      : std::to_string(bytes / 1024 / 1024) + " MiB";
}

std::string FormatSeconds(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g s", seconds);
    return text;
}

//! What is expected of one object of the scan.
struct ObjectExpectation {
    explicit ObjectExpectation(const DecisionInputs &inputs)
        : objects(std::max<uint64_t>(inputs.estimate.objects, 1)),
          column_bytes(inputs.estimate.column_bytes / objects),
          ran_before(inputs.earlier_reply_bytes != REPLY_SIZE_UNKNOWN),
          is_guess(!ran_before && !inputs.estimate.rows_known),
          reply_bytes(ran_before ? inputs.earlier_reply_bytes
                                 : inputs.estimate.rows_out / objects * inputs.estimate.row_bytes),
          reply_bytes_max(
              std::min(std::max(column_bytes / REDUCTION_MIN, SMALL_REPLY_BYTES), REPLY_BYTES_MAX)) {}

    bool IsSmallEnough() const { return is_guess || reply_bytes <= reply_bytes_max; }

    const uint64_t objects;
    const uint64_t column_bytes;
    const bool ran_before;
    const bool is_guess; //!< nothing is known of reply_bytes
    const uint64_t reply_bytes;
    const uint64_t reply_bytes_max; //!< by the sizes alone
};

//! Why the scan is read whatever the speeds are. Empty: it is not.
std::string ReasonToRead(const DecisionInputs &inputs, const ObjectExpectation &object) {
    const std::string columns_text =
        ", the columns about " + FormatBytes(object.column_bytes) + " per object";
    if (object.column_bytes == 0) {
        return "the footers alone have the answer";
    }
    if (inputs.earlier_reply_bytes == REPLY_TOO_LARGE) {
        return "earlier answers were too large" + columns_text;
    }
    if (!inputs.speeds.reads_known && inputs.estimate.column_bytes < SMALL_SCAN_BYTES) {
        return "there is little to read" + columns_text;
    }
    return {};
}

std::string DescribeSizes(const ObjectExpectation &object) {
    const std::string reply = object.is_guess ? "the number of groups is not known, the first object tells"
                              : object.ran_before
                                  ? "earlier answers had " + FormatBytes(object.reply_bytes)
                                  : "an answer is estimated to have " + FormatBytes(object.reply_bytes);
    return reply + ", the columns about " + FormatBytes(object.column_bytes) + " per object";
}

//! Reading all objects: transfer and decoding overlap.
double ReadingSeconds(const ObjectExpectation &object, const MeasuredSpeeds &speeds) {
    return static_cast<double>(object.column_bytes * object.objects) *
           std::max(speeds.read_s_per_byte, speeds.cpu_s_per_byte / speeds.client_processors);
}

//! Replaces the decision by sizes where the measured speeds make one way clearly faster. Speeds of OSDs that
//! were only assumed must make pushing clearly faster.
void CompareTimes(const ObjectExpectation &object, const DecisionInputs &inputs, Decision &decision) {
    const MeasuredSpeeds &speeds = inputs.speeds;
    const double reading_s = ReadingSeconds(object, speeds);
    decision.lz4 = speeds.read_s_per_byte > LZ4_LINK_S_PER_BYTE;
    const double reply_s_per_byte = speeds.read_s_per_byte * (decision.lz4 ? LZ4_RATIO : 1);
    // A guess counts as nothing: where even an empty reply would not arrive sooner, no object need be asked.
    const uint64_t all_replies = object.is_guess ? 0 : object.reply_bytes * object.objects;
    const double replies_s = static_cast<double>(all_replies) * reply_s_per_byte;
    const double processors = std::min(static_cast<double>(object.objects), speeds.osd_processors);
    const double osd_s_per_byte =
        speeds.osds_known ? speeds.osd_s_per_byte : speeds.cpu_s_per_byte / processors;
    const auto all_columns = static_cast<double>(object.column_bytes * object.objects);
    double pushing_s = std::max(all_columns * osd_s_per_byte, replies_s);
    if (decision.share) {
        // OSDs and client work on different objects at the same time, and end together.
        pushing_s = 1 / (1 / reading_s + 1 / pushing_s);
    }
    pushing_s += CALL_OVERHEAD_S;
    if (pushing_s * SPEEDUP_MIN < reading_s) {
        decision.offload = true;
        const double break_even = reading_s / (static_cast<double>(object.objects) * reply_s_per_byte);
        decision.reply_bytes_max =
            std::max(decision.reply_bytes_max, std::min(static_cast<uint64_t>(break_even), REPLY_BYTES_MAX));
    } else if (reading_s * SPEEDUP_MIN < pushing_s || !speeds.osds_known) {
        decision.offload = false;
    }
    decision.why += "; reading would take about " + FormatSeconds(reading_s) + ", pushing " +
                    FormatSeconds(pushing_s) + (decision.lz4 ? " with compressed answers" : "");
}

} // namespace

uint64_t ValueBytes(const duckdb::LogicalType &type) {
    return type.InternalType() == duckdb::PhysicalType::VARCHAR ? VARCHAR_BYTES
                                                                : duckdb::GetTypeIdSize(type.InternalType());
}

MeasuredSpeeds SpeedsOf(PoolRates &rates, size_t threads, const std::optional<OsdCounts> &osds) {
    MeasuredSpeeds speeds;
    RunningRate::Cost reads, calls{0, ASSUMED_CPU_S_PER_BYTE};
    speeds.reads_known = rates.reads.TryGet(reads);
    speeds.osds_known = rates.calls.TryGet(calls);
    speeds.read_s_per_byte = reads.wall_s_per_byte;
    speeds.osd_s_per_byte = calls.wall_s_per_byte;
    speeds.cpu_s_per_byte = calls.cpu_s_per_byte;
    speeds.client_threads = static_cast<double>(std::max<size_t>(threads, 1));
    speeds.client_processors = std::min(speeds.client_threads, ProcessorQuota());
    if (osds) {
        speeds.shares_processors = osds->elsewhere == 0;
        speeds.osd_processors = osds->elsewhere > 0 ? osds->elsewhere : speeds.client_processors;
    }
    return speeds;
}

bool LinkSpeedMatters(const DecisionInputs &inputs) {
    const ObjectExpectation object(inputs);
    if (inputs.kept.expected || inputs.speeds.reads_known || !ReasonToRead(inputs, object).empty()) {
        return false;
    }
    // A fast link may make reading faster; a slow one may make even large replies worth it.
    const double compressed = static_cast<double>(object.reply_bytes) * LZ4_RATIO;
    return object.IsSmallEnough() || compressed * SPEEDUP_MIN < static_cast<double>(object.column_bytes);
}

Decision Decide(const DecisionInputs &inputs) {
    const ObjectExpectation object(inputs);
    Decision decision;
    if (inputs.kept.expected && object.column_bytes > 0) {
        decision.offload = decision.expects_kept = true;
        decision.reply_bytes_max = inputs.kept.reply_bytes_max;
        decision.lz4 = inputs.kept.lz4;
        decision.why = "the OSDs' hosts have probably kept the earlier answers";
        return decision;
    }
    decision.reply_bytes_max = object.reply_bytes_max;
    decision.why = ReasonToRead(inputs, object);
    if (!decision.why.empty()) {
        return decision;
    }
    decision.offload = object.IsSmallEnough();
    decision.why = DescribeSizes(object);
    // Where both have the same processors, reading would only take them from the OSDs.
    decision.share = inputs.estimate.any_order && !inputs.speeds.shares_processors;
    if (inputs.speeds.reads_known) {
        CompareTimes(object, inputs, decision);
    }
    // The threads share the link and the processors.
    decision.read_object_s = ReadingSeconds(object, inputs.speeds) * inputs.speeds.client_threads /
                             static_cast<double>(object.objects);
    decision.probe = object.is_guess && decision.offload;
    return decision;
}

} // namespace rawduck_ceph
