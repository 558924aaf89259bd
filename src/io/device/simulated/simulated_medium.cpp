#include "io/device/simulated/simulated_medium.hpp"

#include "common/error.hpp"
#include "common/text/name_table.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <thread>

namespace rawduck {

namespace {

constexpr NamedValue<SimulatedFault> FAULT_NAMES[] = {
    {SimulatedFault::POWER_CUT, "power_cut"},     {SimulatedFault::WRITE_ERROR, "write_error"},
    {SimulatedFault::FLUSH_ERROR, "flush_error"}, {SimulatedFault::MISDIRECTED_WRITE, "misdirected_write"},
    {SimulatedFault::READ_ERROR, "read_error"},   {SimulatedFault::CORRUPTION, "corruption"}};

std::atomic<uint64_t> last_moment{0};

std::string RandomText(std::mt19937_64 &random, uint64_t length) {
    std::string text(length, '\0');
    for (char &byte : text) {
        byte = static_cast<char>(random());
    }
    return text;
}

} // namespace

SimulatedFault ParseSimulatedFault(const std::string &text) {
    if (const auto fault = FindValue(FAULT_NAMES, text)) {
        return *fault;
    }
    throw Error(ErrorCode::INVALID,
                "fault '" + text + "' is unknown; known faults: " + ListNames(FAULT_NAMES));
}

//! Draws what becomes of each atomic write unit. Each cut follows one pattern, because the patterns find
//! different mistakes: a single lost unit among many that survive is unlikely in a fair draw for each.
struct SimulatedMedium::Fate {
    enum class Pattern { ALL_LOST, ALL_SURVIVE, UNIT_BY_UNIT, WRITE_BY_WRITE, ONE_LOST, ONE_SURVIVES };
    enum class Outcome { LOST, SURVIVED, GARBAGE };

    Fate(uint64_t seed, uint64_t events, uint64_t volatile_units)
        : random(seed * 0x9E3779B97F4A7C15 + events) {
        pattern = static_cast<Pattern>(random() % 6);
        survivors_of_16 = 1 + random() % 15;
        garbage_of_16 = random() % 2 == 0 ? 0 : 1 + random() % 8;
        chosen = volatile_units == 0 ? 0 : random() % volatile_units;
    }

    void BeginWrite() { write_survives = random() % 16 < survivors_of_16; }

    Outcome Draw() {
        const bool is_chosen = unit++ == chosen;
        switch (pattern) {
        case Pattern::ALL_LOST:
            return Outcome::LOST;
        case Pattern::ALL_SURVIVE:
            return Outcome::SURVIVED;
        case Pattern::ONE_LOST:
            return !is_chosen ? Outcome::SURVIVED : Damaged() ? Outcome::GARBAGE : Outcome::LOST;
        case Pattern::ONE_SURVIVES:
            return is_chosen ? Outcome::SURVIVED : Outcome::LOST;
        case Pattern::WRITE_BY_WRITE:
            return write_survives ? Outcome::SURVIVED : Outcome::LOST;
        case Pattern::UNIT_BY_UNIT:
            break;
        }
        const bool survives = random() % 16 < survivors_of_16;
        return survives ? Outcome::SURVIVED : Damaged() ? Outcome::GARBAGE : Outcome::LOST;
    }

    bool Damaged() { return random() % 16 < garbage_of_16; }

    std::mt19937_64 random;
    Pattern pattern;
    uint64_t survivors_of_16, garbage_of_16, chosen, unit = 0;
    bool write_survives = false;
};

SimulatedMedium::SimulatedMedium(const SimulatedOptions &options)
    : options_(options), initial_(options.capacity_bytes), current_(options.capacity_bytes),
      capacities_{{0, options.capacity_bytes}}, random_(options.seed), settled_(options.capacity_bytes) {}

uint64_t SimulatedMedium::CapacityBytes() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return current_.Capacity();
}

void SimulatedMedium::Grow(uint64_t capacity_bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (capacity_bytes < current_.Capacity() || !IsAligned(capacity_bytes, options_.lba_size)) {
        throw Error(ErrorCode::INVALID, "a simulated device of " + std::to_string(current_.Capacity()) +
                                            " bytes cannot get " + std::to_string(capacity_bytes) +
                                            ": give it more, and whole LBAs");
    }
    for (SparseImage *image : {&initial_, &current_, &settled_}) {
        image->Resize(capacity_bytes);
    }
    capacities_[events_.size()] = capacity_bytes;
}

uint64_t SimulatedMedium::Events() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return events_.size();
}

uint64_t SimulatedMedium::Moment() {
    return last_moment;
}

uint64_t SimulatedMedium::EventsUntil(uint64_t moment) const {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto later =
        std::upper_bound(events_.begin(), events_.end(), moment,
                         [](uint64_t limit, const Event &event) { return limit < event.moment; });
    return static_cast<uint64_t>(later - events_.begin());
}

bool SimulatedMedium::PowerIsOn() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return power_is_on_;
}

void SimulatedMedium::CheckPower() {
    if (TakeFault(SimulatedFault::POWER_CUT)) {
        power_is_on_ = false;
    }
}

//! Whether this fault is armed and due; then it is disarmed.
bool SimulatedMedium::TakeFault(SimulatedFault fault) {
    auto armed = armed_.find(fault);
    if (armed == armed_.end() || events_.size() < armed->second) {
        return false;
    }
    armed_.erase(armed);
    return true;
}

int64_t SimulatedMedium::Read(uint64_t offset, char *data, uint64_t length) {
    std::lock_guard<std::mutex> guard(mutex_);
    CheckPower();
    if (!power_is_on_) {
        return -ENODEV;
    }
    auto bad = unreadable_.lower_bound(offset / options_.lba_size);
    if (bad != unreadable_.end() && *bad * options_.lba_size < offset + length) {
        return -EIO;
    }
    current_.Read(offset, data, length);
    return static_cast<int64_t>(length);
}

int64_t SimulatedMedium::Write(uint64_t offset, const char *data, uint64_t length, bool fua,
                               std::optional<uint64_t> &event) {
    std::lock_guard<std::mutex> guard(mutex_);
    CheckPower();
    if (!power_is_on_) {
        return -ENODEV;
    }
    std::string content(data, length);
    const bool fails = TakeFault(SimulatedFault::WRITE_ERROR);
    if (fails) {
        MixWithOld(offset, content);
    } else if (TakeFault(SimulatedFault::MISDIRECTED_WRITE)) {
        const uint64_t lbas = (current_.Capacity() - length) / options_.lba_size + 1;
        offset = random_() % lbas * options_.lba_size;
    }
    const uint64_t number = Record(offset, std::move(content), fua && options_.fua == SimulatedFua::HONOURED);
    if (fails) {
        return -EIO;
    }
    event = number;
    return static_cast<int64_t>(length);
}

uint64_t SimulatedMedium::Record(uint64_t offset, std::string data, bool fua) {
    current_.Write(offset, data.data(), data.size());
    const uint64_t first = offset / options_.lba_size;
    const uint64_t last = (offset + data.size()) / options_.lba_size;
    unreadable_.erase(unreadable_.lower_bound(first), unreadable_.lower_bound(last));
    Event event;
    event.offset = offset;
    event.data = std::move(data);
    event.fua = fua;
    event.moment = ++last_moment;
    events_.push_back(std::move(event));
    return events_.size() - 1;
}

//! Of a write that fails, any part may have been written.
void SimulatedMedium::MixWithOld(uint64_t offset, std::string &data) {
    std::string old(data.size(), '\0');
    current_.Read(offset, &old[0], old.size());
    for (uint64_t at = 0; at < data.size(); at += options_.lba_size) {
        if (random_() % 2 == 0) {
            data.replace(at, options_.lba_size, old, at, options_.lba_size);
        }
    }
}

void SimulatedMedium::Complete(uint64_t number) {
    std::lock_guard<std::mutex> guard(mutex_);
    Event &event = events_[number];
    if (event.fua || !options_.volatile_write_cache) {
        event.durable_from = events_.size();
    } else {
        unflushed_.push_back(number);
    }
}

int64_t SimulatedMedium::Flush() {
    std::vector<uint64_t> covered;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        covered.swap(unflushed_);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(options_.latency_us));
    std::lock_guard<std::mutex> guard(mutex_);
    CheckPower();
    if (!power_is_on_) {
        return -ENODEV;
    }
    const bool fails = TakeFault(SimulatedFault::FLUSH_ERROR);
    events_.emplace_back().moment = ++last_moment;
    for (const uint64_t number : covered) {
        // What a failed flush covered is not tried again: a later flush that succeeds says nothing about it.
        events_[number].durable_from = fails ? NEVER : events_.size();
    }
    return fails ? -EIO : 0;
}

void SimulatedMedium::Deallocate(uint64_t offset, uint64_t length) {
    std::lock_guard<std::mutex> guard(mutex_);
    CheckPower();
    if (power_is_on_ && length > 0) {
        unflushed_.push_back(Record(offset, std::string(length, '\0'), false));
    }
}

void SimulatedMedium::Inject(SimulatedFault fault, uint64_t at) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (fault != SimulatedFault::READ_ERROR && fault != SimulatedFault::CORRUPTION) {
        armed_[fault] = at;
        return;
    }
    if (at >= current_.Capacity() / options_.lba_size) {
        throw Error(ErrorCode::INVALID, "LBA " + std::to_string(at) + " lies beyond the last one, " +
                                            std::to_string(current_.Capacity() / options_.lba_size - 1));
    }
    if (fault == SimulatedFault::READ_ERROR) {
        unreadable_.insert(at);
        return;
    }
    std::string data(options_.lba_size, '\0');
    current_.Read(at * options_.lba_size, &data[0], data.size());
    data[random_() % data.size()] ^= static_cast<char>(1 << random_() % 8);
    events_[Record(at * options_.lba_size, std::move(data), true)].durable_from = events_.size();
}

//! Moves `settled_` to the longest prefix that is durable in a cut after `events`.
void SimulatedMedium::Advance(uint64_t events) {
    if (settled_for_ > events) {
        settled_ = initial_;
        settled_events_ = 0;
    }
    settled_for_ = events;
    while (settled_events_ < events) {
        const Event &event = events_[settled_events_];
        if (!event.data.empty() && event.durable_from > events) {
            return;
        }
        settled_.Write(event.offset, event.data.data(), event.data.size());
        settled_events_++;
    }
}

uint64_t SimulatedMedium::CountVolatile(uint64_t begin, uint64_t end) const {
    uint64_t units = 0;
    for (uint64_t i = begin; i < end; i++) {
        const Event &event = events_[i];
        if (!event.data.empty() && event.durable_from > end) {
            const uint64_t first = event.offset / options_.atomic_write_bytes;
            units += (event.offset + event.data.size() - 1) / options_.atomic_write_bytes - first + 1;
        }
    }
    return units;
}

void SimulatedMedium::ApplyTorn(const Event &event, Fate &fate, SparseImage &image,
                                PowerCutReport &report) const {
    fate.BeginWrite();
    const uint64_t survived = report.units_survived, damaged = report.units_lost + report.units_garbage;
    for (uint64_t at = 0; at < event.data.size();) {
        const uint64_t offset = event.offset + at;
        const uint64_t to_boundary = options_.atomic_write_bytes - offset % options_.atomic_write_bytes;
        const uint64_t length = std::min(to_boundary, event.data.size() - at);
        switch (fate.Draw()) {
        case Fate::Outcome::SURVIVED:
            image.Write(offset, event.data.data() + at, length);
            report.units_survived++;
            break;
        case Fate::Outcome::GARBAGE:
            image.Write(offset, RandomText(fate.random, length).data(), length);
            report.units_garbage++;
            break;
        case Fate::Outcome::LOST:
            report.units_lost++;
            break;
        }
        at += length;
    }
    const bool torn = report.units_survived > survived && report.units_lost + report.units_garbage > damaged;
    report.writes_torn += torn ? 1 : 0;
}

std::shared_ptr<SimulatedMedium> SimulatedMedium::PowerCut(uint64_t events, uint64_t seed,
                                                           PowerCutReport &report) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (events > events_.size()) {
        throw Error(ErrorCode::INVALID, "no power cut after event " + std::to_string(events) +
                                            " is possible: there are only " + std::to_string(events_.size()));
    }
    Advance(events);
    SparseImage image = settled_;
    Fate fate(seed, events, CountVolatile(settled_events_, events));
    for (uint64_t i = settled_events_; i < events; i++) {
        const Event &event = events_[i];
        if (event.durable_from <= events) {
            image.Write(event.offset, event.data.data(), event.data.size());
        } else if (!event.data.empty()) {
            ApplyTorn(event, fate, image, report);
        }
    }
    SimulatedOptions options = options_;
    options.capacity_bytes = std::prev(capacities_.upper_bound(events))->second;
    options.latency_us = 0;
    options.seed = seed; // or its faults would fall where this device's have fallen
    image.Resize(options.capacity_bytes);
    auto survivor = std::make_shared<SimulatedMedium>(options);
    survivor->unreadable_ = unreadable_;
    survivor->settled_ = survivor->current_ = survivor->initial_ = std::move(image);
    return survivor;
}

} // namespace rawduck
