//! Ranges of a file that were never written: they read as zeros, whatever lies on the target.
#pragma once

#include "volume/format/record.hpp"

#include <map>
#include <vector>

namespace rawduck {

//! Not thread-safe. Ranges in bytes.
class HoleSet {
  public:
    HoleSet() = default;
    explicit HoleSet(const std::vector<Hole> &holes) {
        for (const Hole &hole : holes) {
            holes_[hole.offset] = hole.offset + hole.length;
        }
    }
    bool Empty() const { return holes_.empty(); }

    //! The range must not touch a hole that is there, except at its ends.
    void Add(uint64_t offset, uint64_t length) {
        if (length == 0) {
            return;
        }
        auto next = holes_.lower_bound(offset);
        if (next != holes_.begin() && std::prev(next)->second == offset) {
            std::prev(next)->second = offset + length;
        } else {
            holes_[offset] = offset + length;
        }
    }

    void Remove(uint64_t offset, uint64_t length) {
        const uint64_t end = offset + length;
        auto entry = holes_.lower_bound(offset);
        if (entry != holes_.begin() && std::prev(entry)->second > offset) {
            entry = std::prev(entry);
        }
        while (entry != holes_.end() && entry->first < end) {
            const uint64_t hole_begin = entry->first;
            const uint64_t hole_end = entry->second;
            entry = holes_.erase(entry);
            if (hole_begin < offset) {
                holes_[hole_begin] = offset;
            }
            if (hole_end > end) {
                holes_[end] = hole_end;
            }
        }
    }

    //! Clears the parts of `data`, which holds the file's bytes from `offset`, that lie in holes.
    void ZeroFill(char *data, uint64_t offset, uint64_t length) const;

    std::vector<Hole> List() const {
        std::vector<Hole> holes;
        for (const auto &[begin, end] : holes_) {
            holes.push_back(Hole{begin, end - begin});
        }
        return holes;
    }

  private:
    std::map<uint64_t, uint64_t> holes_; //!< begin -> end
};

} // namespace rawduck
