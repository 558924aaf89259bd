#include "ceph/pushdown/offload_decision.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace rawduck {

namespace {

//! An answer has to be this much smaller than the columns: the OSD's work is not free, and estimates are
//! rough.
constexpr uint64_t ADVANTAGE = 2;
//! Answers of this size are never too large, however small the columns are.
constexpr uint64_t SMALL_REPLY_BYTES = 16 * 1024;
constexpr size_t LEARNED_MAX = 1000;
//! Of a text, which is not known before it is read.
constexpr uint64_t TEXT_BYTES = 20;

struct Learned {
    std::mutex mutex;
    std::unordered_map<std::string, uint64_t> bytes;
};

Learned &TheLearned() {
    static Learned learned;
    return learned;
}

std::string Size(uint64_t bytes) {
    return bytes < 10 * 1024          ? std::to_string(bytes) + " bytes"
           : bytes < 10 * 1024 * 1024 ? std::to_string(bytes / 1024) + " KiB"
                                      : std::to_string(bytes / 1024 / 1024) + " MiB";
}

} // namespace

uint64_t ValueBytes(const duckdb::LogicalType &type) {
    return type.InternalType() == duckdb::PhysicalType::VARCHAR ? TEXT_BYTES
                                                                : duckdb::GetTypeIdSize(type.InternalType());
}

Decision Decide(const ScanEstimate &estimate, uint64_t learned) {
    const uint64_t objects = std::max<uint64_t>(estimate.objects, 1);
    const auto columns =
        static_cast<uint64_t>(static_cast<double>(estimate.object_bytes) * estimate.column_share) / objects;
    const bool known = learned != UINT64_MAX;
    const uint64_t reply = known ? learned : estimate.rows_out / objects * estimate.row_bytes;

    Decision decision;
    decision.reply_bytes_max = std::min(std::max(columns / ADVANTAGE, SMALL_REPLY_BYTES), REPLY_BYTES_MAX);
    const std::string columns_text = ", the columns about " + Size(columns) + " per object";
    if (columns == 0) {
        decision.why = "the footers alone have the answer";
    } else if (known && learned == TOO_LARGE_TO_KNOW) {
        decision.why = "earlier answers were too large" + columns_text;
    } else if (!known && !estimate.rows_known) {
        decision.offload = decision.probe = true;
        decision.why = "the number of groups is not known, the first object tells" + columns_text;
    } else {
        decision.offload = reply <= decision.reply_bytes_max;
        decision.why =
            (known ? "earlier answers had " : "an answer is estimated to have ") + Size(reply) + columns_text;
    }
    return decision;
}

uint64_t LearnedReplyBytes(const std::string &query) {
    Learned &learned = TheLearned();
    std::lock_guard<std::mutex> lock(learned.mutex);
    auto found = learned.bytes.find(query);
    return found == learned.bytes.end() ? UINT64_MAX : found->second;
}

void LearnReplyBytes(const std::string &query, uint64_t bytes_per_object) {
    Learned &learned = TheLearned();
    std::lock_guard<std::mutex> lock(learned.mutex);
    if (learned.bytes.size() >= LEARNED_MAX) {
        learned.bytes.clear();
    }
    learned.bytes[query] = bytes_per_object;
}

} // namespace rawduck
