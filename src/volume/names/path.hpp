//! The two kinds of paths that the extension adds to DuckDB: nvme://<target>/<file> names a file on a volume,
//! direct://<path> an ordinary file that is read and written past the page cache.
#pragma once

#include <string>
#include <vector>

namespace rawduck {

constexpr const char *VOLUME_SCHEME = "nvme://";
constexpr const char *DIRECT_SCHEME = "direct://";

bool IsVolumePath(const std::string &path);
bool IsDirectPath(const std::string &path);

//! The components between the slashes, without empty ones and ".". Throws Error INVALID at "..": a volume has
//! no parent links, and a path that climbs could step around DuckDB's allowed_directories.
std::vector<std::string> PathComponents(const std::string &path);

//! nvme://<target>/<file>, taken apart. `file` is empty when the path names the volume itself.
struct VolumePath {
    std::string target; //!< "/dev/nvme0n1", "/data/store.rawduck", "memory:scratch" or "simulated:x"
    std::string file;   //!< "sales.duckdb", "tmp/x.parquet"

    //! The path in its normal form: nvme://memory:scratch/x, nvme:///dev/nvme0n1/x.
    std::string ToString() const;
};

//! Finds where the target ends by asking the operating system for each component: a target is the first one
//! that is not a directory. Throws Error NOT_FOUND when there is none (saying how to make a volume),
//! PERMISSION, or INVALID (not nvme://, relative, "..").
VolumePath SplitVolumePath(const std::string &path);

//! An absolute path without symbolic links, "." and "..", of what is there or of what would be made: a link
//! is followed also where nothing is at its end, because that is where a file would be created. Where the
//! operating system does not let us look, the rest stays as it is.
std::string ResolvedPath(const std::string &path);

//! nvme://<target>/<file> in the form in which DuckDB compares paths: without links in the part that leads
//! to the target, whether or not there is one. Throws Error INVALID like SplitVolumePath.
std::string CanonicalVolumePath(const std::string &path);

//! direct://<path> without its scheme; "~" and relative paths are left as they are. Throws Error INVALID for
//! anything else and for an empty path.
std::string StripDirectScheme(const std::string &path);

} // namespace rawduck
