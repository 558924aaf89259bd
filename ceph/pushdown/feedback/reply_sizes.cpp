#include "ceph/pushdown/feedback/reply_sizes.hpp"

#include <mutex>
#include <unordered_map>

namespace rawduck_ceph {

namespace {

constexpr size_t LEARNED_MAX = 1000;

struct Learned {
    std::mutex mutex;
    std::unordered_map<std::string, uint64_t> bytes;
};

Learned &TheLearned() {
    static auto &learned = *new Learned;
    return learned;
}

} // namespace

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

} // namespace rawduck_ceph
