//! Ranges of a file that were never written: they read as zeros, whatever the target holds there.
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
    size_t Count() const { return holes_.size(); }

    //! The range must not touch a hole that is there, except at its ends.
    void Add(uint64_t offset, uint64_t length);
    //! Returns whether there was a hole in the range. When it throws, nothing has changed.
    bool Remove(uint64_t offset, uint64_t length);

    //! Clears the parts of `data`, which holds the file's bytes from `offset`, that lie in holes.
    void ZeroFill(char *data, uint64_t offset, uint64_t length) const;

    bool Touches(uint64_t offset, uint64_t length) const;

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
