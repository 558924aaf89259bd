//! UUIDs: of volumes, and of drives that are striped.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace rawduck {

using Uuid = std::array<uint8_t, 16>;

//! "6f1c…-…": the usual 8-4-4-4-12 form.
std::string UuidText(const Uuid &uuid);
//! A random (version 4) UUID from the kernel. Throws Error IO.
Uuid MakeUuid();

} // namespace rawduck
