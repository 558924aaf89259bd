//! Whether somebody has interrupted the query that waits. May be empty: then nobody can.
#pragma once

#include <functional>

namespace rawduck {

using Interrupted = std::function<bool()>;

} // namespace rawduck
