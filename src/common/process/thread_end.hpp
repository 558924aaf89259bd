//! Whether the calling thread is ending.
//!
//! A database may be closed by an exit handler, a static destructor or a thread_local's destructor. By then
//! the thread's thread_local objects may be destroyed, ours and DuckDB's, and must not be used. What asks
//! here keeps its thread_local data in objects without destructors.
#pragma once

namespace rawduck {

class ThreadEnd {
  public:
    //! True before any object is destroyed that existed when the thread first called Watch.
    static bool HasBegun() { return begun; }
    //! To be called when the thread_local objects exist that HasBegun is to tell about.
    static void Watch() { thread_local const Sentinel sentinel; }

  private:
    // Destroyed in the reverse order of construction: before what it watches.
    struct Sentinel {
        Sentinel() {} // not trivial, or there would be nothing to destroy
        ~Sentinel() { begun = true; }
    };
    static inline thread_local bool begun = false;
};

} // namespace rawduck
