//! The scans and queries of this process. Python announces one, with its options; a SQL function opens it in the transaction of
//! whoever calls it; then Python takes its batches.
#pragma once

#include "gpu/scan/batch_source.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace rawduck::gpu {

//! Thread-safe. Tickets are never 0.
uint64_t AnnounceScan(const ScanOptions &options);
//! Of a scan that is announced and not open yet. Throws Error (INVALID) for any other ticket.
ScanOptions OptionsOf(uint64_t ticket);
void SetOpened(uint64_t ticket, std::shared_ptr<BatchSource> scan);
//! Throws Error (INVALID) where the scan is closed, or was never opened.
std::shared_ptr<BatchSource> OpenedScan(uint64_t ticket);
//! Gives back what it holds, as soon as nobody is taking a batch. Safe to call again.
void CloseScan(uint64_t ticket);

} // namespace rawduck::gpu
