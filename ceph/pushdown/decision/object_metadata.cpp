#include "ceph/pushdown/decision/object_metadata.hpp"

#include "ceph/parquet/footer.hpp"
#include "ceph/pushdown/feedback/pushdown_feedback.hpp"

#include <algorithm>
#include <chrono>

namespace rawduck_ceph {

namespace {

//! More than passes a traffic shaper at once (its burst).
constexpr uint64_t TRIAL_BYTES = 256 * 1024;
//! A read whose time is that of the round trip.
constexpr uint64_t ROUND_TRIP_BYTES = 4096;
//! A link that looks slower than 250 MB/s is measured once more: other traffic may have been in the way.
constexpr double MEASURED_TWICE_S_PER_BYTE = 4e-9;

//! `tail`: as much of the object's end as is known already.
std::shared_ptr<const ParquetSummary> FetchSummary(const CallTarget &object, const ObjectStatus &status,
                                                   std::string tail) {
    auto read = [&](uint64_t length) {
        tail.resize(std::min(length, status.size));
        object.pool->Read(object.object, status.version, &tail[0], tail.size(), status.size - tail.size());
    };
    if (tail.empty()) {
        read(ObjectTails::BYTES_MAX);
    }
    ParquetSummary summary;
    while (const size_t wanted = SummarizeParquet(tail.data(), tail.size(), summary)) {
        if (wanted > status.size || wanted > FOOTER_BYTES_MAX) {
            return nullptr;
        }
        read(wanted);
    }
    return std::make_shared<const ParquetSummary>(std::move(summary));
}

double SecondsToRead(const CallTarget &object, uint64_t version, std::string &buffer, uint64_t length) {
    const auto begin = std::chrono::steady_clock::now();
    object.pool->Read(object.object, version, &buffer[0], length, 0);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace

ObjectMetadata FetchMetadata(const CallTarget &object, ObjectPins &pins) {
    ObjectMetadata metadata;
    ObjectStatus status;
    std::string tail; // usually known, because DuckDB has just opened the object to bind the query
    const bool known = object.feedback->tails.Find(object.object, status, tail);
    // A tail of another version is of an earlier query, or of one that runs beside this one.
    if (!known || status.version != pins.Find(*object.pool, object.object)) {
        tail.clear();
        if (!object.pool->TryStat(object.object, status)) {
            return metadata;
        }
        pins.Pin(*object.pool, object.object, status.version);
    }
    metadata.bytes = status.size;
    metadata.version = status.version;
    auto &summaries = PushdownFeedback::OfProcess().summaries;
    const std::string key = object.pool->KeyOf(object.object) + "@" + std::to_string(status.version);
    if (auto summary = summaries.Find(key)) {
        metadata.summary = *summary;
        return metadata;
    }
    metadata.summary = FetchSummary(object, status, std::move(tail));
    summaries.Store(key, metadata.summary);
    return metadata;
}

void MeasureLink(const CallTarget &object, const ObjectMetadata &metadata) {
    const uint64_t bytes = std::min(TRIAL_BYTES, metadata.bytes);
    if (bytes <= ROUND_TRIP_BYTES) {
        return;
    }
    std::string buffer(bytes, '\0');
    double s_per_byte = SecondsToRead(object, metadata.version, buffer, bytes) / static_cast<double>(bytes);
    if (s_per_byte > MEASURED_TWICE_S_PER_BYTE) {
        // Reads in flight together share the round trip, so it is subtracted. A round trip that takes more
        // than half of the trial was delayed by something else, and only half is subtracted.
        const double round_trip = SecondsToRead(object, metadata.version, buffer, ROUND_TRIP_BYTES);
        const double trial = SecondsToRead(object, metadata.version, buffer, bytes);
        s_per_byte =
            (trial - std::min(round_trip, trial / 2)) / static_cast<double>(bytes - ROUND_TRIP_BYTES);
    }
    object.feedback->rates->reads.SetTrial(s_per_byte);
}

} // namespace rawduck_ceph
