//! Rings that no queue uses any more, for the next queue: where many files are open for a moment each, making and
//! closing a ring costs more than what is read through it.
#pragma once

#include <cstdint>
#include <liburing.h>
#include <memory>

namespace rawduck {

//! A thread that alone may submit to its rings.
struct RingThread;

//! What a queue may use the ring of another for.
struct RingKind {
    uint32_t entries = 0;
    unsigned setup_flags = 0;
    std::shared_ptr<RingThread> thread; //!< the only one that may submit; null: any
    //! Whether the calling thread may.
    bool IsForThisThread() const noexcept;
};

//! For a ring that the calling thread makes. Throws std::bad_alloc.
RingKind MakeRingKind(uint32_t entries, unsigned setup_flags);

//! Idle rings have a descriptor and some kernel memory each, so they are few: one in 32 of the descriptors that the
//! process may have, up to 32. Those of a thread are closed when it ends. Thread-safe. In a child made by fork() there are none.
bool TakeIdleRing(const RingKind &kind, io_uring &ring);
//! `ring`: nothing of it is in flight, and all completions were seen. Closes one where there are too many, and this one
//! where its thread has ended.
void GiveIdleRing(const RingKind &kind, io_uring &ring) noexcept;
//! Returns whether there was one.
bool CloseIdleRings();

} // namespace rawduck
