#include "ceph/pushdown/scan/scan_log.hpp"

#include <deque>

namespace rawduck_ceph {

namespace {

constexpr size_t LOGGED_SCANS_MAX = 200;

struct ScanLog {
    std::mutex mutex; //!< guards what follows; no other lock is taken while it is held
    uint64_t next_number = 1;
    std::deque<std::shared_ptr<ScanRecord>> records;
};

ScanLog &ScanLogOfProcess() {
    static auto &log = *new ScanLog;
    return log;
}

} // namespace

void ScanRecord::CountFallback(const std::string &reason) {
    fell_back++;
    std::lock_guard<std::mutex> lock(mutex_);
    fallbacks_[reason]++;
}

std::string ScanRecord::FallbackText() const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string text;
    for (const auto &reason : fallbacks_) {
        text += (text.empty() ? "" : "; ") + std::to_string(reason.second) + " x " + reason.first;
    }
    return text;
}

std::shared_ptr<ScanRecord> LogScan(ScanOutcome outcome) {
    ScanLog &log = ScanLogOfProcess();
    std::lock_guard<std::mutex> lock(log.mutex);
    auto record = std::make_shared<ScanRecord>(log.next_number++, std::move(outcome));
    log.records.push_back(record);
    if (log.records.size() > LOGGED_SCANS_MAX) {
        log.records.pop_front();
    }
    return record;
}

std::vector<std::shared_ptr<ScanRecord>> LoggedScans() {
    ScanLog &log = ScanLogOfProcess();
    std::lock_guard<std::mutex> lock(log.mutex);
    return {log.records.begin(), log.records.end()};
}

} // namespace rawduck_ceph
