//! Many things that are made by several threads, and taken in their order.
#pragma once

#include <cstdint>
#include <functional>

namespace rawduck {

//! `make(i)` for each i < count, by several threads, `at_a_time` one behind the other by the same one; `take(i)` by the
//! calling thread, in their order, each when it is made. Throws what they throw; then not all are made or taken. Its threads
//! have ended when it returns; where none can be started, the calling one does it all.
void OrderedParallel(uint64_t count, uint64_t at_a_time, const std::function<void(uint64_t i)> &make,
                     const std::function<void(uint64_t i)> &take);

} // namespace rawduck
