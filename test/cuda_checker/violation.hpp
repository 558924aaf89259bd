//! What a caller of the driver must not do ends the process, with a sentence.
#pragma once

#include <string>

namespace rawduck::gpu::checker {

[[noreturn]] void Violation(const std::string &what);

} // namespace rawduck::gpu::checker
