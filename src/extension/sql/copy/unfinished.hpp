//! The file that a copy writes before it takes its name: what it is called, and what a killed copy left of it.
#pragma once

#include "duckdb/common/file_system.hpp"

#include <string>

namespace rawduck {

class Volume;

//! A new name beside a destination, for which there is room in a name of any length. Eight random digits end it, so
//! that no two copies have one file, and none opens what is there. `is_on_volume`: otherwise it is a local path.
std::string UnfinishedPath(const std::string &destination, bool is_on_volume);

//! Removes what killed copies left: of any file on a volume, and of this destination elsewhere, which others may
//! share. What is locked belongs to a copy that is running, and what cannot be removed stays.
void RemoveLeftovers(duckdb::FileSystem &files, Volume &volume, const std::string &target);
void RemoveLeftovers(const std::string &local_destination);

//! Throws NO_SPACE unless `bytes` are free, on the volume or where the local path leads.
void RequireRoom(const Volume &volume, const std::string &destination, uint64_t bytes);
void RequireRoom(const std::string &local_destination, uint64_t bytes);

} // namespace rawduck
