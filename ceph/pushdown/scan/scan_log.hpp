//! What was decided for each scan of rados:// objects, and what came of it. Kept for the last scans of the
//! process, and shown by rados_scans().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rawduck_ceph {

//! Counters are written while the scan runs. Thread-safe where not const.
struct ScanRecord {
    uint64_t number = 0; //!< 1, 2, 3, … in this process
    std::string path;    //!< of the first object
    uint64_t objects = 0;
    bool offloaded = false;
    std::string what; //!< is pushed, or would have been
    std::string why;  //!< it was decided so

    std::atomic<uint64_t> answered{0};    //!< objects that the object class answered for
    std::atomic<uint64_t> fell_back{0};   //!< objects that were read here instead
    std::atomic<uint64_t> reply_bytes{0}; //!< on the wire
    std::atomic<uint64_t> osd_read_bytes{0};
    std::atomic<uint64_t> osd_cpu_us{0};

    void CountFallback(const std::string &reason);
    //! Each reason with the number of objects.
    std::map<std::string, uint64_t> Fallbacks() const;

  private:
    mutable std::mutex mutex_;
    std::map<std::string, uint64_t> fallbacks_;
};

//! Remembers a scan, in place of the oldest.
std::shared_ptr<ScanRecord> NewScanRecord(std::string path, uint64_t objects);
//! The oldest first.
std::vector<std::shared_ptr<ScanRecord>> ScanRecords();

} // namespace rawduck_ceph
