#include "ceph/pushdown/decision/offload_decision.hpp"

#include <algorithm>
#include <cstdio>

namespace rawduck_ceph {

namespace {

//! An answer has to be this much smaller than the columns:
//! the OSD's work is not free, and estimates are rough.
constexpr uint64_t ADVANTAGE = 2;
//! Answers of this size are never too large, however small the columns are.
constexpr uint64_t SMALL_REPLY_BYTES = 16 * 1024;
//! By so much has one way to be expected faster, from what was measured, to be taken for that alone.
constexpr double CLEARLY = 1.2;
//! Of decoding and filtering, until OSDs have shown how fast they are: what one processor takes, and how many
//! of them work side by side on different objects.
constexpr double ASSUMED_CPU_S_PER_BYTE = 6e-9;
constexpr uint64_t ASSUMED_OSD_PROCESSORS = 2;
//! Of a request, whatever it works through: opening the object, planning the query.
constexpr double REQUEST_S = 1e-3;
//! Columns of a scan that are less are read where nothing was measured: at 1 Gbit/s that takes 8 ms.
constexpr uint64_t LITTLE_BYTES = 1024 * 1024;
//! Slower links than 250 MB/s move answers faster when they are compressed.
constexpr double LZ4_PAYS_S_PER_BYTE = 4e-9;
//! What LZ4 leaves of DuckDB's vectors, about.
constexpr double LZ4_SHARE = 0.5;
//! Of a text, which is not known before it is read.
constexpr uint64_t TEXT_BYTES = 20;

std::string Size(uint64_t bytes) {
    return bytes < 10 * 1024          ? std::to_string(bytes) + " bytes"
           : bytes < 10 * 1024 * 1024 ? std::to_string(bytes / 1024) + " KiB"
                                      : std::to_string(bytes / 1024 / 1024) + " MiB";
}

std::string Time(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g s", seconds);
    return text;
}

//! Changes the decision where what was measured speaks clearly for the other way; what is only assumed of
//! OSDs has to speak clearly for pushing. `columns` and `reply`: of one of so many objects.
void CompareTimes(uint64_t columns, uint64_t reply, uint64_t objects, const MeasuredSpeeds &speeds,
                  Decision &decision) {
    // What is moved and what is decoded overlap, here and in the OSDs.
    const auto all = static_cast<double>(columns * objects);
    const double reading =
        all * std::max(speeds.read_s_per_byte, speeds.cpu_s_per_byte / speeds.client_threads);
    decision.lz4 = speeds.read_s_per_byte > LZ4_PAYS_S_PER_BYTE;
    const double answer_s_per_byte = speeds.read_s_per_byte * (decision.lz4 ? LZ4_SHARE : 1);
    const double answers = static_cast<double>(reply * objects) * answer_s_per_byte;
    const auto processors = static_cast<double>(std::min(objects, ASSUMED_OSD_PROCESSORS));
    const double osd_s_per_byte =
        speeds.osds_known ? speeds.osd_s_per_byte : speeds.cpu_s_per_byte / processors;
    const double pushing = REQUEST_S + std::max(all * osd_s_per_byte, answers);
    if (pushing * CLEARLY < reading) {
        decision.offload = true;
        const double as_slow = reading / (static_cast<double>(objects) * answer_s_per_byte);
        decision.reply_bytes_max =
            std::max(decision.reply_bytes_max, std::min(static_cast<uint64_t>(as_slow), REPLY_BYTES_MAX));
    } else if (reading * CLEARLY < pushing || !speeds.osds_known) {
        decision.offload = false;
    }
    decision.why += "; reading would take about " + Time(reading) + ", pushing " + Time(pushing) +
                    (decision.lz4 ? " with compressed answers" : "");
}

} // namespace

uint64_t ValueBytes(const duckdb::LogicalType &type) {
    return type.InternalType() == duckdb::PhysicalType::VARCHAR ? TEXT_BYTES
                                                                : duckdb::GetTypeIdSize(type.InternalType());
}

MeasuredSpeeds SpeedsOf(RadosStats &stats, size_t threads) {
    MeasuredSpeeds speeds;
    RunningRate::Cost reads, calls{0, ASSUMED_CPU_S_PER_BYTE};
    speeds.reads_known = stats.reads.Known(reads);
    speeds.osds_known = stats.calls.Known(calls);
    speeds.read_s_per_byte = reads.wall_s_per_byte;
    speeds.osd_s_per_byte = calls.wall_s_per_byte;
    speeds.cpu_s_per_byte = calls.cpu_s_per_byte;
    speeds.client_threads = static_cast<double>(std::max<size_t>(threads, 1));
    return speeds;
}

Decision Decide(const ScanEstimate &estimate, const MeasuredSpeeds &speeds, uint64_t learned) {
    const uint64_t objects = std::max<uint64_t>(estimate.objects, 1);
    const uint64_t columns = estimate.column_bytes / objects;
    const bool known = learned != UINT64_MAX;
    const uint64_t reply = known ? learned : estimate.rows_out / objects * estimate.row_bytes;

    Decision decision;
    decision.reply_bytes_max = std::min(std::max(columns / ADVANTAGE, SMALL_REPLY_BYTES), REPLY_BYTES_MAX);
    const std::string columns_text = ", the columns about " + Size(columns) + " per object";
    if (columns == 0) {
        decision.why = "the footers alone have the answer";
    } else if (known && learned == TOO_LARGE_TO_KNOW) {
        decision.why = "earlier answers were too large" + columns_text;
    } else if (!speeds.reads_known && estimate.column_bytes < LITTLE_BYTES) {
        decision.why = "there is little to read" + columns_text;
    } else {
        const bool guess = !known && !estimate.rows_known;
        decision.offload = guess || reply <= decision.reply_bytes_max;
        decision.why = guess   ? "the number of groups is not known, the first object tells"
                       : known ? "earlier answers had " + Size(reply)
                               : "an answer is estimated to have " + Size(reply);
        decision.why += columns_text;
        if (speeds.reads_known) {
            // Where not even an answer of nothing would come sooner, no object need be asked.
            CompareTimes(columns, guess ? 0 : reply, objects, speeds, decision);
        }
        decision.probe = guess && decision.offload;
        const auto compressed = static_cast<double>(reply) * LZ4_SHARE;
        decision.link_tells =
            !speeds.reads_known && (decision.offload || compressed * CLEARLY < static_cast<double>(columns));
    }
    return decision;
}

} // namespace rawduck_ceph
