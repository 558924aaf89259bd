//! What a database may reach, by the settings with which DuckDB is locked down: enable_external_access with
//! allowed_directories and allowed_paths, and disabled_filesystems.
//!
//! DuckDB asks these of each path that goes through its own file system, before it calls ours. That is not
//! enough in three places, which ask here first: our functions take targets, which are no paths to DuckDB;
//! whoever disables LocalFileSystem means the local disk, which nvme:// and direct:// lead to by another
//! way; and what DuckDB compares with the allowed directories is the path as it is written, while "~" and
//! what a pattern matches are known to us only.
#pragma once

#include "duckdb/common/file_opener.hpp"
#include "duckdb/common/file_system.hpp"

#include <string>

namespace rawduck {

class Sandbox {
  public:
    //! Of the database behind `opener`. Without one nothing is forbidden.
    explicit Sandbox(duckdb::optional_ptr<duckdb::FileOpener> opener);
    explicit Sandbox(duckdb::ClientContext &context);

    //! Each throws PermissionException, naming the path and
    //! the setting. A path has its scheme, and is absolute.
    void RequireFile(const std::string &path) const;
    void RequireDirectory(const std::string &path) const;
    //! For what works on a volume as a whole: everything on it has to be allowed. As a user names it.
    void RequireVolume(const std::string &target) const;
    //! For what looks at all devices of the machine: nothing may be forbidden.
    void RequireMachine(const std::string &function) const;

    bool MayReachFile(const std::string &path) const;
    bool MayReachDirectory(const std::string &path) const;
    //! Whether any file on the volume is allowed, so that it is no secret that the volume is there.
    bool MaySeeVolume(const std::string &target) const;

  private:
    //! Names the path as it was `written` when it is refused: where a link leads is told to nobody who may
    //! not go there.
    void Require(const std::string &path, duckdb::FileType type, const std::string &written) const;
    //! Why the file system of the path, or one below it, is not to be used; empty when it may.
    std::string WhyDisabled(const std::string &path) const;
    bool IsAllowed(const std::string &path, duckdb::FileType type) const;

    duckdb::optional_ptr<duckdb::FileOpener> opener_;
    duckdb::DatabaseInstance *database_; //!< null: nothing is forbidden
};

} // namespace rawduck
