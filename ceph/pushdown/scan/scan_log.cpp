#include "ceph/pushdown/scan/scan_log.hpp"

#include <deque>

namespace rawduck_ceph {

namespace {

constexpr size_t RECORDS_MAX = 200;

struct Log {
    std::mutex mutex;
    uint64_t next = 1;
    std::deque<std::shared_ptr<ScanRecord>> records;
};

Log &TheLog() {
    static auto &log = *new Log;
    return log;
}

} // namespace

void ScanRecord::CountFallback(const std::string &reason) {
    fell_back++;
    std::lock_guard<std::mutex> lock(mutex_);
    fallbacks_[reason]++;
}

std::map<std::string, uint64_t> ScanRecord::Fallbacks() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return fallbacks_;
}

std::shared_ptr<ScanRecord> NewScanRecord(std::string path, uint64_t objects) {
    auto record = std::make_shared<ScanRecord>();
    record->path = std::move(path);
    record->objects = objects;
    Log &log = TheLog();
    std::lock_guard<std::mutex> lock(log.mutex);
    record->number = log.next++;
    log.records.push_back(record);
    if (log.records.size() > RECORDS_MAX) {
        log.records.pop_front();
    }
    return record;
}

std::vector<std::shared_ptr<ScanRecord>> ScanRecords() {
    Log &log = TheLog();
    std::lock_guard<std::mutex> lock(log.mutex);
    return {log.records.begin(), log.records.end()};
}

} // namespace rawduck_ceph
