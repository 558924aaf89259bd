#include "volume/hole_set.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

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
