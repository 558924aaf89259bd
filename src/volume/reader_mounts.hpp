//! Readers beside the writer: what the rest of the code sees of them.
//!
//! A reader locks a byte of its own (ReaderLock), and asks whoever has the volume open for writing to keep the database as
//! it is durable: a snapshot under a name that only readers have. From then on it reads the places that the answer names,
//! and no metadata. Without a writer it makes the snapshot itself, and lets go of the volume. Where it may not, it keeps
//! the shared lock, which keeps writers out, as a reader without "@latest" does.
#pragma once

#include "volume/registry.hpp"

#include <functional>
#include <string>

namespace rawduck {

//! Where to find a file: on the volume, or beside whoever writes to it. `path_file`: of a path. <name>@latest, and its logs,
//! are on a volume with nothing else, all as they were at one instant, which lasts as long as the pin or a file on it that is open.
//! Those who pin it with the same `owner` meanwhile have the same instant; what is pinned anew is the last durable state. A snapshot
//! is found in the same way where another process writes to the volume. Throws Error: LOCKED when whoever writes cannot be
//! asked, NOT_FOUND, INVALID when nothing of the file is durable yet, UNSUPPORTED for @latest where no other process reaches
//! the target, and as PinVolume.
//! LOOK: what is found of a database stays for some seconds, until it is pinned to be opened with a lock (OPEN). BESIDE: a
//! snapshot, too, is kept for a reader, so that writers can begin while it is read, however long that takes.
enum class PinUse { LOOK, OPEN, BESIDE };
//! Whether the owner has ended: what it has looked at is not for another one at the same address. Called under a mutex.
using OwnerIsGone = std::function<bool()>;
VolumePin PinFor(const std::string &target_name, const std::string &path_file, const void *owner,
                 const MountOptions &options, PinUse use = PinUse::LOOK,
                 const OwnerIsGone &owner_is_gone = nullptr);

} // namespace rawduck
