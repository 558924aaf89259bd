#include "volume/file/hole_set.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

void HoleSet::Add(uint64_t offset, uint64_t length) {
    if (length == 0) {
        return;
    }
    const auto next = holes_.lower_bound(offset);
    RAWDUCK_INVARIANT((next == holes_.end() || next->first >= offset + length) &&
                          (next == holes_.begin() || std::prev(next)->second <= offset),
                      "holes do not overlap");
    if (next != holes_.begin() && std::prev(next)->second == offset) {
        std::prev(next)->second = offset + length;
    } else {
        holes_[offset] = offset + length;
    }
}

bool HoleSet::Remove(uint64_t offset, uint64_t length) {
    if (length == 0) {
        return false;
    }
    const uint64_t end = offset + length;
    auto entry = holes_.lower_bound(offset);
    bool changed = false;
    if (entry != holes_.begin() && std::prev(entry)->second > offset) {
        const auto before = std::prev(entry);
        if (before->second > end) {
            holes_.emplace_hint(entry, end, before->second);
            before->second = offset;
            return true;
        }
        before->second = offset;
        changed = true;
    }
    while (entry != holes_.end() && entry->first < end) {
        changed = true;
        if (entry->second > end) {
            auto rest = holes_.extract(entry); // its memory serves what is left of it
            rest.key() = end;
            holes_.insert(std::move(rest));
            break;
        }
        entry = holes_.erase(entry);
    }
    return changed;
}

bool HoleSet::Touches(uint64_t offset, uint64_t length) const {
    auto entry = holes_.lower_bound(offset);
    if (entry != holes_.begin() && std::prev(entry)->second > offset) {
        entry = std::prev(entry);
    }
    return entry != holes_.end() && entry->first < offset + length;
}

void HoleSet::ZeroFill(char *data, uint64_t offset, uint64_t length) const {
    const uint64_t end = offset + length;
    auto entry = holes_.lower_bound(offset);
    if (entry != holes_.begin() && std::prev(entry)->second > offset) {
        entry = std::prev(entry);
    }
    for (; entry != holes_.end() && entry->first < end; ++entry) {
        const uint64_t from = std::max(offset, entry->first);
        const uint64_t to = std::min(end, entry->second);
        memset(data + (from - offset), 0, to - from);
    }
}

} // namespace rawduck
