//! Sizes as people write them.
#pragma once

#include <cstdint>
#include <string>

namespace rawduck {

//! "8G", "8 GiB", "256 KiB", "1.5T", "4096": K, M, G and T alone and KiB ... TiB are powers of 1024; kB, KB,
//! MB, GB and TB are powers of 1000, as in DuckDB. Case does not matter. `what` names the value in the
//! message. Throws Error INVALID.
uint64_t ParseSize(const std::string &text, const std::string &what);

//! "8 GiB", "256 KiB", "1000 bytes": the largest unit that divides it.
std::string SizeText(uint64_t bytes);

} // namespace rawduck
