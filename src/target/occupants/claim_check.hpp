//! Whether exclusive use counts as occupation.
#pragma once

namespace rawduck {

//! Whether to ask the kernel if somebody holds a block device exclusively. Its holder must not.
enum class ClaimCheck { ASK, SKIP };

} // namespace rawduck
