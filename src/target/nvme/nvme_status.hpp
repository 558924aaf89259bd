//! NVMe status codes in words (NVM Express Base and NVM Command Set specifications, "Status Code").
#pragma once

#include <cstdint>
#include <string>

namespace rawduck {

//! `status` as the kernel hands it out: status code in bits 0-7, its type in bits 8-10, "do not retry" in bit
//! 14. A clause such as "unrecovered read error: the medium is damaged (NVMe status type 2h, code 81h); ...".
std::string NvmeStatusText(uint16_t status);

//! Whether the same command may succeed when it is sent again.
bool NvmeStatusIsTransient(uint16_t status);

} // namespace rawduck
