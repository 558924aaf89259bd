//! Room in a vector for elements that are about to be added one by one, which then cannot fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rawduck {

//! Grows as adding them would. Throws std::bad_alloc; the vector is then as it was.
template <class T> void MakeRoom(std::vector<T> &vector, size_t more) {
    const size_t needed = vector.size() + more;
    if (needed > vector.capacity()) {
        vector.reserve(std::max(needed, 2 * vector.capacity()));
    }
}

} // namespace rawduck
