//! Rings that no queue uses any more, for the next queue: where many files are open for a moment each, making and
//! closing a ring costs more than what is read through it.
#pragma once

#include <cstdint>
#include <liburing.h>

namespace rawduck {

//! What a queue may use the ring of another for.
struct RingKind {
    uint32_t entries;
    unsigned setup_flags;
    uint64_t thread; //!< the only one that may submit (RingThread), or 0 for any
};

//! Of the calling thread, for rings with these flags. Never the same for two threads.
uint64_t RingThread(unsigned setup_flags);

//! Idle rings have a descriptor and some kernel memory each, so they are few: one in 32 of the descriptors that the
//! process may have, up to 32. Thread-safe. In a child made by fork() there are none.
bool TakeIdleRing(const RingKind &kind, io_uring &ring);
//! `ring`: nothing of it is in flight, and all completions were seen. Closes one where there are too many.
void GiveIdleRing(const RingKind &kind, io_uring &ring) noexcept;
//! Returns whether there was one.
bool CloseIdleRings();

} // namespace rawduck
