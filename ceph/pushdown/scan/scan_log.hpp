//! What was decided for each scan of rados:// objects, and what came of it: the last scans of the process, as
//! shown by rados_scans().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! What the optimizer decided for a scan.
struct ScanOutcome {
    std::string first_path;
    uint64_t objects = 0;
    bool offloaded = false;
    std::string pushed; //!< the part of the query that is pushed, or would have been
    std::string why;
};

//! Counters are updated while the scan runs. Thread-safe.
struct ScanRecord {
    ScanRecord(uint64_t scan_number, ScanOutcome decided)
        : number(scan_number), outcome(std::move(decided)) {}

    const uint64_t number; //!< 1, 2, 3, … in this process
    const ScanOutcome outcome;

    std::atomic<uint64_t> answered{0};    //!< objects for which the object class replied
    std::atomic<uint64_t> cached{0};      //!< of these, with an answer that it had kept
    std::atomic<uint64_t> fell_back{0};   //!< objects that were read by the client instead
    std::atomic<uint64_t> pruned{0};      //!< objects that have no key of a join, and were left alone
    std::atomic<uint64_t> shared{0};      //!< objects that the client read while OSDs worked on others
    std::atomic<uint64_t> reply_bytes{0}; //!< as transferred
    std::atomic<uint64_t> osd_read_bytes{0};
    std::atomic<uint64_t> osd_cpu_us{0};

    void CountFallback(const std::string &reason);
    //! The number of objects by reason: "2 x busy: …; 1 x …". Empty: none.
    std::string FallbackText() const;

  private:
    mutable std::mutex mutex_; //!< guards fallbacks_; no other lock is taken while it is held
    std::map<std::string, uint64_t> fallbacks_;
};

//! Adds a scan to the log, which drops the oldest one when it is full.
std::shared_ptr<ScanRecord> LogScan(ScanOutcome outcome);
//! The oldest first.
std::vector<std::shared_ptr<ScanRecord>> LoggedScans();

} // namespace rawduck_ceph
