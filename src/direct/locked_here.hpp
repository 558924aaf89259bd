//! Ordinary files that handles of this process have locked.
#pragma once

#include <string>

namespace rawduck {

//! Says so while it lives. Thread-safe.
class LockedHere {
  public:
    //! `identity`: as in Target.
    explicit LockedHere(std::string identity);
    ~LockedHere();
    LockedHere(const LockedHere &) = delete;
    LockedHere &operator=(const LockedHere &) = delete;

    static bool Has(const std::string &identity);

  private:
    const std::string identity_;
};

//! A log belongs to whoever has its database locked. DuckDB removes the one that it finds beside a database that it has
//! not found, and by then another process may have made that and committed to it. Throws Error LOCKED where the database
//! is there and not locked here. Nothing happens for other files.
void RequireOwnLog(const std::string &path);

} // namespace rawduck
