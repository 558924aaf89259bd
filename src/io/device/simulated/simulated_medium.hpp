//! What the simulated engine stores data on: a device with a volatile write cache that records everything it
//! is sent, so that power cuts can be simulated after any event, any number of times.
//!
//! An event is a write (when it is submitted), a deallocation, or a flush; the events are numbered from 0,
//! and the power can go before the first and after each. A write is durable
//!  - from the first flush on that began after the write had completed, or
//!  - from its completion on, when it carried FUA or the device has no volatile write cache.
//! Of all other writes, each atomic write unit survives a power cut, is lost, or holds garbage afterwards,
//! independent of the order in which they were issued.
#pragma once

#include "io/device/device.hpp"
#include "io/device/simulated/sparse_image.hpp"

#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>

namespace rawduck {

//! What a device makes of Force Unit Access. IGNORED: it claims to honour it, and does not.
enum class SimulatedFua { NONE, HONOURED, IGNORED };

struct SimulatedOptions {
    uint64_t capacity_bytes = 0;
    uint32_t lba_size = 4096;        //!< 512 or 4096
    uint32_t atomic_write_bytes = 0; //!< never torn when aligned to its own size; 0: one LBA
    bool volatile_write_cache = true;
    SimulatedFua fua = SimulatedFua::HONOURED;
    uint64_t latency_us = 0; //!< of a flush, and of waiting for commands
    uint64_t seed = 0;       //!< of everything that is left to chance while the device works
};

//! What can be made to go wrong while the device works. Each happens once.
enum class SimulatedFault {
    POWER_CUT,         //!< after event `at` nothing is carried out any more, every command fails with ENODEV
    WRITE_ERROR,       //!< the first write from event `at` on fails with EIO, and parts of it may be written
    FLUSH_ERROR,       //!< the first flush from event `at` on fails with EIO, and what it covered is given up
    MISDIRECTED_WRITE, //!< the first write from event `at` on succeeds and goes elsewhere
    READ_ERROR,        //!< LBA `at` cannot be read until it is written again
    CORRUPTION         //!< one bit of LBA `at` changes
};
//! "power_cut", "write_error", ... Throws Error INVALID listing the known ones.
SimulatedFault ParseSimulatedFault(const std::string &text);

//! The outcome of the writes that were not durable when the power was cut.
struct PowerCutReport {
    uint64_t units_survived = 0, units_lost = 0, units_garbage = 0; //!< atomic write units
    uint64_t writes_torn = 0; //!< of which a part survived and a part did not
};

//! Thread-safe.
class SimulatedMedium {
  public:
    explicit SimulatedMedium(const SimulatedOptions &options);
    SimulatedMedium(const SimulatedMedium &) = delete;
    SimulatedMedium &operator=(const SimulatedMedium &) = delete;

    //! As it was made: how many bytes it has now, CapacityBytes says.
    const SimulatedOptions &Options() const { return options_; }
    uint64_t CapacityBytes() const;
    //! The device is larger from the next event on, also after a power cut behind that. Throws Error INVALID.
    void Grow(uint64_t capacity_bytes);
    //! Number of events so far.
    uint64_t Events() const;
    //! Number of events so far of all media together, for cuts that hit several at the same moment: each after as many of its
    //! own events as EventsUntil says.
    static uint64_t Moment();
    uint64_t EventsUntil(uint64_t moment) const;
    bool PowerIsOn() const;

    // What the device does. Results as in Command::result.
    int64_t Read(uint64_t offset, char *data, uint64_t length);
    //! `event` is for Complete; left alone when the write was not recorded.
    int64_t Write(uint64_t offset, const char *data, uint64_t length, bool fua,
                  std::optional<uint64_t> &event);
    //! The write has been reported as completed.
    void Complete(uint64_t event);
    //! Takes latency_us. Covers what had completed when it began. 0 or a negative errno.
    int64_t Flush();
    //! The range may read as zeros from now on, or after the next power cut, or never.
    void Deallocate(uint64_t offset, uint64_t length);

    //! `at`: an event or an LBA, as said at SimulatedFault.
    //! Throws Error INVALID for an LBA that is not there.
    void Inject(SimulatedFault fault, uint64_t at);

    //! The device with the power back on, without latency, as a cut after the first `events` events may leave
    //! it. The same seed gives the same outcome. Throws Error INVALID when there are not so many events.
    std::shared_ptr<SimulatedMedium> PowerCut(uint64_t events, uint64_t seed, PowerCutReport &report);

  private:
    static constexpr uint64_t NEVER = UINT64_MAX;
    struct Event {
        uint64_t offset = 0;
        std::string data; //!< empty: a flush
        bool fua = false;
        uint64_t moment = 0;           //!< Moment() then, this one included
        uint64_t durable_from = NEVER; //!< cuts after this many events leave it
    };
    struct Fate;

    void CheckPower();
    bool TakeFault(SimulatedFault fault);
    uint64_t Record(uint64_t offset, std::string data, bool fua);
    void MixWithOld(uint64_t offset, std::string &data);
    void Advance(uint64_t events);
    uint64_t CountVolatile(uint64_t begin, uint64_t end) const;
    void ApplyTorn(const Event &event, Fate &fate, SparseImage &image, PowerCutReport &report) const;

    const SimulatedOptions options_;
    mutable std::mutex mutex_; //!< guards everything below
    SparseImage initial_;
    SparseImage current_;
    std::vector<Event> events_;
    std::map<uint64_t, uint64_t> capacities_;  //!< bytes that the device has behind so many events
    std::vector<uint64_t> unflushed_;          //!< completed events that no flush covers
    std::set<uint64_t> unreadable_;            //!< LBAs
    std::map<SimulatedFault, uint64_t> armed_; //!< by event
    std::mt19937_64 random_;
    bool power_is_on_ = true;
    // The longest durable prefix of the events, as of the latest cut: cuts in ascending order are fast.
    SparseImage settled_;
    uint64_t settled_events_ = 0;
    uint64_t settled_for_ = 0; //!< the cut that it was made for
};

} // namespace rawduck
