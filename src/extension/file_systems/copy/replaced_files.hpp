//! COPY writes a file "tmp_<name>" first, which takes the place of a file that exists. Whether that may be replaced is asked
//! before anything is written, and not only when all is.
#pragma once

#include "duckdb/common/file_opener.hpp"

#include <string>

namespace rawduck {

//! COPY asks whether there is such a file, and there is. Remembered for the rest of the query of `opener`.
void RememberExisting(duckdb::optional_ptr<duckdb::FileOpener> opener, const std::string &path);

//! `path` is about to be made. Throws Error PERMISSION where it is to replace a file that was remembered, and that this
//! user may not write to, and INVALID as RequireNoVolume.
void RequireReplaceable(duckdb::optional_ptr<duckdb::FileOpener> opener, const std::string &path);

//! Throws Error INVALID where there is a rawduck volume, or a part of one: who writes `path` over it mostly means a file on
//! it, and all that is on it would be gone. Nothing where there is no such file.
void RequireNoVolume(const std::string &path);

} // namespace rawduck
