//! How often allocation units are counted, as ranges of equal counts, in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace rawduck {

//! Not thread-safe. Units that nothing was said of have the count 0. A change that throws std::bad_alloc has changed no
//! count of the range that it throws at; Add works on one range of equal counts after the other.
class UnitCounts {
  public:
    struct Piece {
        uint64_t start = 0, units = 0, count = 0;
    };

    //! The first units of [start, end), which is not empty, that have equal counts.
    Piece First(uint64_t start, uint64_t end) const;
    //! Calls `visit` with the pieces of equal counts that the range consists of, in order.
    template <class VISIT> void ForEach(uint64_t start, uint64_t units, const VISIT &visit) const {
        for (uint64_t at = start; at < start + units;) {
            const Piece piece = First(at, start + units);
            visit(piece);
            at += piece.units;
        }
    }
    //! Whether any unit of the range is counted.
    bool Any(uint64_t start, uint64_t units) const;

    void Set(uint64_t start, uint64_t units, uint64_t count);
    //! One more for each unit.
    void Add(uint64_t start, uint64_t units);

    bool Empty() const { return ranges_.empty(); }
    void Clear() { ranges_.clear(); }
    //! Calls `visit` with each range that is counted.
    template <class VISIT> void ForAll(const VISIT &visit) const {
        for (const auto &[start, range] : ranges_) {
            visit(Piece{start, range.end - start, range.count});
        }
    }

  private:
    struct Range {
        uint64_t end = 0, count = 0;
    };
    using Ranges = std::map<uint64_t, Range>;
    void SplitAt(uint64_t unit);
    void JoinWithPrevious(Ranges::iterator range);

    Ranges ranges_; //!< by first unit, disjoint, with counts above 0
};

} // namespace rawduck
