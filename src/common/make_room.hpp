//! Reserves space in a vector, so that adding elements one by one cannot fail afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rawduck {

//! Grows the capacity as push_back would. Throws std::bad_alloc and leaves the vector unchanged.
template <class T> void MakeRoom(std::vector<T> &vector, size_t more) {
    const size_t needed = vector.size() + more;
    if (needed > vector.capacity()) {
        vector.reserve(std::max(needed, 2 * vector.capacity()));
    }
}

} // namespace rawduck
