//! Who lets a device transfer to and from pages of BufferMemory in place is told before they go back to the system:
//! the device would go on with the old pages, and nobody would notice.
#pragma once

#include <cstdint>

namespace rawduck {

class PageUser {
  public:
    virtual ~PageUser() = default;
    //! Nobody uses what is in these pages any more, and this is the last moment at which they are there. Called by
    //! any thread, which may hold the lock of an arena: must not allocate from BufferMemory.
    virtual void ForgetPages(char *begin, uint64_t bytes) noexcept = 0;
};

//! From now on, and until no longer. Not in a child made by fork(), which has neither devices nor their mappings.
//! Thread-safe. Throws std::bad_alloc.
void AddPageUser(PageUser &user);
//! Returns when no call is running.
void RemovePageUser(PageUser &user);
void TellPageUsers(char *begin, uint64_t bytes) noexcept;

} // namespace rawduck
