//! How a pool reports its reads to whoever measures them.
#pragma once

#include <cstdint>

namespace rawduck_ceph {

//! Called from any thread, also those of librados: an implementation must return soon and must not throw.
class ReadObserver {
  public:
    virtual ~ReadObserver() = default;
    //! Called before a read is sent. Exactly one ReadEnded follows.
    virtual void ReadStarted() = 0;
    //! `bytes`: the length of the read; 0 when librados did not accept it.
    virtual void ReadEnded(uint64_t bytes) = 0;
};

} // namespace rawduck_ceph
