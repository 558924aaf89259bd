//! How a file is opened, whether it lies on a volume or on a file system.
#pragma once

#include "volume/format/file_kind.hpp"

namespace rawduck {

struct OpenMode {
    bool read = true, write = false;
    bool create = false;      //!< when it is missing
    bool truncate = false;    //!< remove its contents, once it is locked
    bool must_create = false; //!< throw EXISTS when it is there
    bool owner_only = false;  //!< of a new file on a file system: no access for others
    //! To be opened for writing without one, a file must not be locked by another.
    enum class Lock { NONE, SHARED, EXCLUSIVE } lock = Lock::NONE;
    //! On a volume, with a shared lock: what is durable stays in its place as long as it is open, so that others can be told
    //! where that is. Throws LOCKED where somebody writes.
    bool in_place = false;
    //! On a volume: a new file of which nothing was synced is gone when its last writer closes it, as it would be after a
    //! crash. Half a database cannot be opened, and stands in the way of the next one of its name.
    bool gone_unless_synced = false;
    //! Of a new file on a volume, and how any file is read and written. TEMP only for what DuckDB opens as
    //! temporary; never guessed from the name.
    FileKind kind = FileKind::OTHER;
};

} // namespace rawduck
