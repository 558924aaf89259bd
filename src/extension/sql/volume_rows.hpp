//! Table functions about one volume. Where another process has it open for writing, that one says what it knows.
#pragma once

#include "extension/sql/row_function.hpp"

#include "volume/volume.hpp"

namespace rawduck {

// What each of them says. Thread-safe; no pin is kept.
Rows InfoOf(const Volume &volume);
Rows FilesOf(const Volume &volume);
Rows SnapshotsOf(const Volume &volume);
Rows StatsOf(const Volume &volume);

//! The rows of a function with that name, which is one of those above. `target`: one that DuckDB's settings allow. Throws
//! Error as DoHereOrAsk.
Rows RowsOfVolume(duckdb::ClientContext &context, const std::string &target, const std::string &function);

//! From now on this process answers others about the volumes that it has open for writing.
void AnswerAboutVolumes();

} // namespace rawduck
