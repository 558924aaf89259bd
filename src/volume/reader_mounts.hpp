//! Readers beside the writer: what the rest of the code sees of them.
//!
//! A reader locks a byte of its own (ReaderLock), and asks whoever has the volume open for writing to keep the database as
//! it is durable: a snapshot under a name that only readers have. From then on it reads the places that the answer names,
//! and no metadata. Without a writer it makes the snapshot itself, and lets go of the volume. Where it may not, it keeps
//! the shared lock, which keeps writers out, as a reader without "@latest" does.
#pragma once

#include "volume/registry.hpp"

namespace rawduck {

//! The database that "sales.duckdb@latest", or the name of a log of that, is about; empty for other names.
std::string DatabaseOfLatest(const std::string &file);

//! A volume with nothing but <database>@latest and its logs, all as they were at one instant. It lasts as long as the
//! pin or a file on it that is open. Those who pin it with the same `owner` meanwhile have the same instant; what is pinned anew is
//! the last durable state. Throws Error: LOCKED when whoever writes cannot be asked, NOT_FOUND, INVALID when nothing of
//! the database is durable yet, UNSUPPORTED where no other process reaches the target, and as PinVolume.
VolumePin PinReader(const std::string &target_name, const std::string &database, const void *owner,
                    const MountOptions &options);

} // namespace rawduck
