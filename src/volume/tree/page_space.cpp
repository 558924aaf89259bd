#include "volume/tree/page_space.hpp"

#include "common/error.hpp"
#include "common/invariant.hpp"

#include <cstring>

namespace rawduck {

namespace {

//! In the map, for each zone: its first allocation unit, and a bit for each page, lowest first.
constexpr uint64_t ZONE_MAP_BYTES = sizeof(uint64_t) + ZONE_PAGES / 8;

} // namespace

PageSpace::PageSpace(TakeZone take_zone, GiveZone give_zone)
    : take_zone_(std::move(take_zone)), give_zone_(std::move(give_zone)) {}

PageSpace::ZoneMap::iterator PageSpace::ZoneOf(uint64_t unit) {
    auto zone = zones_.upper_bound(unit);
    RAWDUCK_INVARIANT(zone != zones_.begin(), "a page lies in a zone");
    --zone;
    RAWDUCK_INVARIANT(unit - zone->first < ZONE_UNITS && (unit - zone->first) % TREE_PAGE_UNITS == 0,
                      "a page lies in a zone");
    return zone;
}

void PageSpace::Reserve(uint64_t pages) {
    while (room_ < pages) {
        const uint64_t start = take_zone_();
        if (start == 0) {
            throw Error(ErrorCode::NO_SPACE, "no space for metadata; remove files or snapshots from the "
                                             "volume, or use a larger one");
        }
        try {
            zones_.emplace(start, Zone());
        } catch (...) {
            give_zone_(start);
            throw;
        }
        room_ += ZONE_PAGES;
    }
}

uint64_t PageSpace::Take() {
    auto zone = zones_.lower_bound(next_zone_);
    for (size_t tried = 0; tried <= zones_.size(); tried++, ++zone) {
        zone = zone == zones_.end() ? zones_.begin() : zone;
        if (zone->second.released || zone->second.used.all()) {
            continue;
        }
        uint32_t page = 0;
        while (zone->second.used.test(page)) {
            page++;
        }
        zone->second.used.set(page);
        used_pages_++;
        room_--;
        next_zone_ = zone->first;
        return zone->first + page * TREE_PAGE_UNITS;
    }
    FailInvariant("room_ > 0", "pages are reserved before they are taken", __FILE__, __LINE__);
}

void PageSpace::Give(uint64_t unit) noexcept {
    const auto zone = ZoneOf(unit);
    const size_t page = (unit - zone->first) / TREE_PAGE_UNITS;
    RAWDUCK_INVARIANT(zone->second.used.test(page) && !zone->second.resting.test(page),
                      "a page that is given back was taken");
    zone->second.used.reset(page);
    used_pages_--;
    room_ += zone->second.released ? 0 : 1;
}

void PageSpace::Rest(uint64_t unit) noexcept {
    const auto zone = ZoneOf(unit);
    const size_t page = (unit - zone->first) / TREE_PAGE_UNITS;
    RAWDUCK_INVARIANT(zone->second.used.test(page) && !zone->second.resting.test(page) &&
                          !zone->second.resting_frozen.test(page),
                      "a page is given up once");
    zone->second.resting.set(page);
}

uint64_t PageSpace::MapBytes(uint64_t more_zones) const {
    return (zones_.size() + more_zones) * ZONE_MAP_BYTES;
}

std::string PageSpace::Freeze(std::string map, uint64_t spare_zones) noexcept {
    RAWDUCK_INVARIANT(map.empty() && map.capacity() >= MapBytes(), "room for the map is there");
    frozen_pages_ = 0;
    for (auto &[start, zone] : zones_) {
        RAWDUCK_INVARIANT(zone.resting_frozen.none(), "one checkpoint is written at a time");
        zone.resting_frozen = zone.resting;
        zone.resting.reset();
        const Pages used = zone.used & ~zone.resting_frozen;
        frozen_pages_ += used.count();
        zone.released = used.none() && spare_zones > 0;
        if (zone.released) {
            spare_zones--;
            room_ -= ZONE_PAGES - zone.used.count();
            continue;
        }
        char entry[ZONE_MAP_BYTES] = {};
        memcpy(entry, &start, sizeof start);
        for (uint32_t page = 0; page < ZONE_PAGES; page++) {
            if (used.test(page)) {
                entry[sizeof start + page / 8] |= static_cast<char>(1 << (page % 8));
            }
        }
        map.append(entry, sizeof entry);
    }
    return map;
}

void PageSpace::FrozenIsDurable() noexcept {
    for (auto zone = zones_.begin(); zone != zones_.end();) {
        const uint64_t rested = zone->second.resting_frozen.count();
        used_pages_ -= rested;
        room_ += zone->second.released ? 0 : rested;
        zone->second.used &= ~zone->second.resting_frozen;
        zone->second.resting_frozen.reset();
        if (zone->second.released) {
            RAWDUCK_INVARIANT(zone->second.Empty(), "nothing is put into a zone that goes back");
            give_zone_(zone->first);
            zone = zones_.erase(zone);
        } else {
            ++zone;
        }
    }
}

std::string PageSpace::Load(std::string_view map, uint64_t data_start, uint64_t data_end) {
    if (map.size() % ZONE_MAP_BYTES != 0) {
        return "the map of metadata pages has an impossible length";
    }
    uint64_t end = data_start;
    for (size_t at = 0; at < map.size(); at += ZONE_MAP_BYTES) {
        uint64_t start = 0;
        memcpy(&start, map.data() + at, sizeof start);
        if (start < end || start > data_end || data_end - start < ZONE_UNITS) {
            return "the map of metadata pages names a zone that lies outside or in another one";
        }
        end = start + ZONE_UNITS;
        Zone &zone = zones_[start];
        for (uint32_t page = 0; page < ZONE_PAGES; page++) {
            zone.used.set(page, (map[at + sizeof start + page / 8] >> (page % 8) & 1) != 0);
        }
        used_pages_ += zone.used.count();
        room_ += ZONE_PAGES - zone.used.count();
    }
    return "";
}

std::vector<uint64_t> PageSpace::Zones() const {
    std::vector<uint64_t> starts;
    for (const auto &[start, zone] : zones_) {
        starts.push_back(start);
    }
    return starts;
}

bool PageSpace::InUse(uint64_t unit) const {
    auto zone = zones_.upper_bound(unit);
    if (zone == zones_.begin()) {
        return false;
    }
    --zone;
    const uint64_t into = unit - zone->first;
    return into < ZONE_UNITS && into % TREE_PAGE_UNITS == 0 && zone->second.used.test(into / TREE_PAGE_UNITS);
}

} // namespace rawduck
