#include "volume/catalog/space_map.hpp"

#include "common/invariant.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

//! The bits [first, first + units) of a word.
uint64_t Mask(uint32_t first, uint32_t units) {
    return (units == 64 ? ~uint64_t(0) : (uint64_t(1) << units) - 1) << first;
}

//! Of bits that are set.
uint32_t LongestRun(uint64_t word) {
    uint32_t length = 0;
    for (; word != 0; word &= word << 1) {
        length++;
    }
    return length;
}

} // namespace

SpaceMap::SpaceMap(uint64_t group, const Area &area) {
    const uint64_t first = group * GROUP_UNITS;
    begin_ = static_cast<uint32_t>(std::clamp<uint64_t>(area.start, first, first + GROUP_UNITS) - first);
    end_ = static_cast<uint32_t>(std::clamp<uint64_t>(area.end, first, first + GROUP_UNITS) - first);
    end_ = std::max(begin_, end_);
    Set(0, begin_, true);
    Set(end_, GROUP_UNITS - end_, true);
}

GroupSummary SpaceMap::EmptySummary(uint64_t group, const Area &area) {
    const uint64_t first = group * GROUP_UNITS;
    const uint64_t begin = std::max(area.start, first), end = std::min(area.end, first + GROUP_UNITS);
    const auto units = static_cast<uint16_t>(end > begin ? end - begin : 0);
    return {units, units};
}

void SpaceMap::Load(std::string_view bytes) {
    RAWDUCK_INVARIANT(bytes.size() == BYTES, "a bitmap has a bit for each unit");
    memcpy(words_.data(), bytes.data(), BYTES);
    Set(0, begin_, true);
    Set(end_, GROUP_UNITS - end_, true);
}

std::string SpaceMap::Bytes() const {
    SpaceMap inside = *this;
    inside.Set(0, begin_, false);
    inside.Set(end_, GROUP_UNITS - end_, false);
    return {reinterpret_cast<const char *>(inside.words_.data()), BYTES};
}

void SpaceMap::Set(uint32_t first, uint32_t units, bool used) {
    while (units > 0) {
        const uint32_t bit = first % 64, piece = std::min(units, 64 - bit);
        uint64_t &word = words_[first / 64];
        word = used ? word | Mask(bit, piece) : word & ~Mask(bit, piece);
        first += piece;
        units -= piece;
    }
}

bool SpaceMap::Any(uint32_t first, uint32_t units, bool used) const {
    while (units > 0) {
        const uint32_t bit = first % 64, piece = std::min(units, 64 - bit);
        const uint64_t word = used ? words_[first / 64] : ~words_[first / 64];
        if ((word & Mask(bit, piece)) != 0) {
            return true;
        }
        first += piece;
        units -= piece;
    }
    return false;
}

uint32_t SpaceMap::Next(uint32_t from, bool used) const {
    while (from < GROUP_UNITS) {
        const uint32_t bit = from % 64;
        uint64_t word = used ? words_[from / 64] : ~words_[from / 64];
        word &= Mask(bit, 64 - bit);
        if (word != 0) {
            return from / 64 * 64 + static_cast<uint32_t>(__builtin_ctzll(word));
        }
        from += 64 - bit;
    }
    return GROUP_UNITS;
}

uint32_t SpaceMap::FreeRunAt(uint32_t first, uint32_t limit) const {
    return std::min(limit, Next(first, true) - first);
}

uint32_t SpaceMap::FreeRunAtEnd() const {
    uint32_t run = 0;
    for (size_t word = WORDS; word-- > 0; run += 64) {
        if (words_[word] != 0) {
            return run + static_cast<uint32_t>(__builtin_clzll(words_[word]));
        }
    }
    return run;
}

uint32_t SpaceMap::FindRun(uint32_t units, bool from_the_end) const {
    uint32_t found = GROUP_UNITS;
    for (uint32_t at = Next(0, false); at < GROUP_UNITS;) {
        const uint32_t end = Next(at, true);
        if (end - at >= units) {
            found = from_the_end ? end - units : at;
            if (!from_the_end) {
                break;
            }
        }
        at = Next(end, false);
    }
    return found;
}

// Word by word, however many runs there are.
GroupSummary SpaceMap::Summary() const {
    uint32_t free_units = 0, longest = 0, run = 0; // `run`: up to the end of the word before
    for (const uint64_t used : words_) {
        if (used == 0) {
            run += 64;
            free_units += 64;
            continue;
        }
        const uint64_t free = ~used;
        const auto free_in_word = static_cast<uint32_t>(__builtin_popcountll(free));
        free_units += free_in_word;
        longest = std::max(longest, run + static_cast<uint32_t>(__builtin_ctzll(used)));
        longest = free_in_word > longest ? std::max(longest, LongestRun(free)) : longest;
        run = static_cast<uint32_t>(__builtin_clzll(used));
    }
    longest = std::max(longest, run);
    return {static_cast<uint16_t>(free_units), static_cast<uint16_t>(longest)};
}

bool SpaceMap::Empty() const {
    return AllFree(begin_, end_ - begin_);
}

bool SpaceMap::Full() const {
    return AllUsed(begin_, end_ - begin_);
}

} // namespace rawduck
