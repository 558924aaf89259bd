#include "ceph/pushdown/decision/offload_decision.hpp"

#include "ceph/pushdown/feedback/processor_quota.hpp"

#include <algorithm>
#include <cmath>
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
//! Decoding and filtering on one processor of the client, and how many times that an OSD takes, which also hands the
//! bytes to its helper, and opens and plans object by object. Where OSDs were measured, the client is taken to need so
//! many times less than they. By the processor time of TPC-H's queries 1, 6 and 12 on the scale model: 4e-9 in the
//! client, 8e-9 to 11e-9 in OSDs.
constexpr double ASSUMED_CPU_S_PER_BYTE = 4e-9, OSD_CPU_FACTOR = 2;
//! For each byte of a reply before it is compressed: what an OSD takes to make it, where OSDs were not measured, and
//! what the client takes for it.
constexpr double ENCODING_CPU_S_PER_BYTE = 3e-9, DECODING_CPU_S_PER_BYTE = 2e-9;
//! Objects that are read one by one, as shared ones are, take this many times the processor time of a scan of them.
constexpr double ONE_BY_ONE_CPU_FACTOR = 1.5;
//! Opening the object and planning the query, whatever its size.
constexpr double CALL_OVERHEAD_S = 1e-3;
//! Scans of fewer bytes are read where nothing was measured: at 1 Gbit/s that takes 26 ms, and a trial of the link 4.
constexpr uint64_t SMALL_SCAN_BYTES = 3 * 1024 * 1024;
//! What is read in this time is read: less than this can be saved, and an OSD that is late by chance costs more.
constexpr double SHORT_READ_S = 20e-3;
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

    //! Than all that is read. Answers that were kept are another's, or those of another rados_offload.
    bool IsLarger() const { return ran_before && reply_bytes > std::max(column_bytes, SMALL_REPLY_BYTES); }
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
    if (!object.is_guess && object.reply_bytes > REPLY_BYTES_MAX) { // the class would refuse them
        return "answers of about " + FormatBytes(object.reply_bytes) + " are too large" + columns_text;
    }
    if (!inputs.speeds.reads_known && inputs.estimate.column_bytes < SMALL_SCAN_BYTES) {
        return "there is little to read" + columns_text;
    }
    return {};
}

std::string DescribeSizes(const ObjectExpectation &object) {
    const std::string reply = object.is_guess ? "the number of groups is not known, the first object tells"
                              : object.ran_before
                                  ? "by the last run an answer has " + FormatBytes(object.reply_bytes)
                                  : "an answer is estimated to have " + FormatBytes(object.reply_bytes);
    return reply + ", the columns about " + FormatBytes(object.column_bytes) + " per object";
}

//! Reading all objects: transfer and decoding overlap. `cpu_factor`: how many times the processor time of a scan it
//! takes.
double ReadingSeconds(const ObjectExpectation &object, const MeasuredSpeeds &speeds, double cpu_factor = 1) {
    const double cpu_s_per_byte = cpu_factor * speeds.client_cpu_s_per_byte / speeds.client_processors;
    return static_cast<double>(object.column_bytes * object.objects) *
           std::max(speeds.read_s_per_byte, cpu_s_per_byte);
}

//! Of the objects, those on the OSD that has most of them: they are spread at random.
double ObjectsOfFullestOsd(double objects, double osds) {
    const double each = objects / osds;
    return std::min(objects, each + std::sqrt(each * std::log(std::max(osds, 1.0))));
}

//! What OSDs are expected to take for their work on all objects.
double OsdSeconds(const ObjectExpectation &object, double all_replies, const MeasuredSpeeds &speeds) {
    const auto objects = static_cast<double>(object.objects);
    const auto all_columns = static_cast<double>(object.column_bytes) * objects;
    if (speeds.osds_known) {
        // A scan of one object uses one OSD: measured by it, several seem slow, and one by a scan of many fast.
        const double measured = std::min(std::max(speeds.osd_calls, 1.0), speeds.osd_processors);
        return all_columns * speeds.osd_s_per_byte * measured / std::min(objects, speeds.osd_processors);
    }
    const double cpu_s =
        all_columns * OSD_CPU_FACTOR * speeds.client_cpu_s_per_byte + all_replies * ENCODING_CPU_S_PER_BYTE;
    if (speeds.shares_processors) {
        return cpu_s / std::min(objects, speeds.osd_processors);
    }
    return cpu_s / objects * ObjectsOfFullestOsd(objects, speeds.osd_processors) / speeds.osd_processor_share;
}

//! What pushing all objects would take.
struct Pushing {
    double osds_s = 0, link_s = 0;
    double decoding_s = 0; //!< of the client, behind the rest
    double Seconds() const { return std::max(osds_s, link_s) + decoding_s; }
};

//! OSDs and client work on different objects at the same time. What is read and what is answered share the link, and an
//! object is not divided.
double SharedSeconds(const ObjectExpectation &object, const MeasuredSpeeds &speeds, const Pushing &pushing) {
    constexpr uint64_t STEPS_MAX = 64;
    const auto all_columns = static_cast<double>(object.column_bytes * object.objects);
    const double link_s = all_columns * speeds.read_s_per_byte;
    const double processors_s =
        all_columns * speeds.client_cpu_s_per_byte * ONE_BY_ONE_CPU_FACTOR / speeds.client_processors;
    const uint64_t steps = std::min(object.objects, STEPS_MAX);
    double best = pushing.Seconds();
    for (uint64_t step = 1; step < steps; step++) {
        const double pushed = static_cast<double>(step) / static_cast<double>(steps), read = 1 - pushed;
        best = std::min(best, std::max({pushed * pushing.osds_s, pushed * pushing.link_s + read * link_s,
                                        read * processors_s}) +
                                  pushed * pushing.decoding_s);
    }
    return best;
}

//! Replaces the decision by sizes where the measured speeds make one way clearly faster. Speeds of OSDs that
//! were only assumed must make pushing clearly faster.
void CompareTimes(const ObjectExpectation &object, const DecisionInputs &inputs, Decision &decision) {
    const MeasuredSpeeds &speeds = inputs.speeds;
    const double reading_s = ReadingSeconds(object, speeds);
    decision.lz4 = speeds.read_s_per_byte > LZ4_LINK_S_PER_BYTE;
    const double reply_s_per_byte = speeds.read_s_per_byte * (decision.lz4 ? LZ4_RATIO : 1);
    // A guess counts as nothing: where even an empty reply would not arrive sooner, no object need be asked.
    const auto all_replies =
        object.is_guess ? 0 : static_cast<double>(object.reply_bytes) * static_cast<double>(object.objects);
    const double decoding_s_per_byte = DECODING_CPU_S_PER_BYTE / speeds.client_processors;
    const Pushing pushing{OsdSeconds(object, all_replies, speeds), all_replies * reply_s_per_byte,
                          all_replies * decoding_s_per_byte};
    const double pushing_s =
        (decision.share ? SharedSeconds(object, speeds, pushing) : pushing.Seconds()) + CALL_OVERHEAD_S;
    if (reading_s < SHORT_READ_S) {
        decision.offload = false;
    } else if (pushing_s * SPEEDUP_MIN < reading_s) {
        decision.offload = true;
        const double break_even =
            reading_s / (static_cast<double>(object.objects) * (reply_s_per_byte + decoding_s_per_byte));
        const double most = std::min(break_even, static_cast<double>(REPLY_BYTES_MAX));
        decision.reply_bytes_max = std::max(decision.reply_bytes_max, static_cast<uint64_t>(most));
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
    RunningRate::Cost reads, calls;
    speeds.reads_known = rates.reads.TryGet(reads);
    speeds.osds_known = rates.calls.TryGet(calls);
    speeds.read_s_per_byte = reads.wall_s_per_byte;
    speeds.osd_s_per_byte = calls.wall_s_per_byte;
    speeds.osd_calls = calls.in_flight;
    speeds.client_cpu_s_per_byte =
        speeds.osds_known ? calls.cpu_s_per_byte / OSD_CPU_FACTOR : ASSUMED_CPU_S_PER_BYTE;
    speeds.client_threads = static_cast<double>(std::max<size_t>(threads, 1));
    speeds.client_processors = std::min(speeds.client_threads, ProcessorQuota());
    if (osds) {
        speeds.shares_processors = osds->elsewhere == 0;
        speeds.osd_processors = osds->elsewhere > 0 ? osds->elsewhere : speeds.client_processors;
    }
    speeds.osd_processor_share = speeds.client_processors / speeds.client_threads;
    return speeds;
}

bool LinkSpeedMatters(const DecisionInputs &inputs) {
    const ObjectExpectation object(inputs);
    if (inputs.has_failed || inputs.kept.expected || inputs.speeds.reads_known ||
        !ReasonToRead(inputs, object).empty()) {
        return false;
    }
    // A fast link may make reading faster; a slow one may make even large replies worth it.
    const double compressed = static_cast<double>(object.reply_bytes) * LZ4_RATIO;
    return object.IsSmallEnough() || compressed * SPEEDUP_MIN < static_cast<double>(object.column_bytes);
}

Decision Decide(const DecisionInputs &inputs) {
    const ObjectExpectation object(inputs);
    Decision decision;
    if (inputs.has_failed) {
        decision.why = "an expression of it has failed in an OSD in the last minute";
        return decision;
    }
    if (inputs.kept.expected && object.column_bytes > 0 && !object.IsLarger()) {
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
    decision.read_object_s = ReadingSeconds(object, inputs.speeds, ONE_BY_ONE_CPU_FACTOR) *
                             inputs.speeds.client_threads / static_cast<double>(object.objects);
    decision.probe = object.is_guess && decision.offload;
    return decision;
}

} // namespace rawduck_ceph
