//! What a snapshot is wherever it is, and what lies beside one that was received, or is being received.
#pragma once

#include "volume/backup/stream/stream_format.hpp"
#include "volume/volume.hpp"

#include <optional>

namespace rawduck {

//! A stream of which something was received.
struct Origin {
    StreamHeader header;    //!< of the first stream of it
    StreamPosition reached; //!< all before is durable; header.End() at its end
};

//! Of an open volume; nothing when there is no such file, or it is damaged.
std::optional<Origin> ReadOrigin(Volume &volume, const std::string &name);
//! Durable on return, and then all of it or what was there before.
void WriteOrigin(OpenFile &file, const Origin &origin);

//! Which snapshot this file is: where it was received, the one that was sent. Throws Error NOT_FOUND, and CORRUPT when what is
//! beside a received one cannot be read.
SnapshotIdentity IdentityOf(Volume &volume, const std::string &snapshot_file);

} // namespace rawduck
