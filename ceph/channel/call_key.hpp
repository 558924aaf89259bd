//! Names a call: the object with its version, and the request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace rawduck_ceph {

//! A keyed hash of 128 bits and the number of the process that made it. Whoever does not know the process's
//! secret cannot make two calls with the same key. Unique within the host: OSDs and pools share a helper.
struct CallKey {
    uint64_t words[3] = {};

    bool operator<(const CallKey &other) const { return std::memcmp(words, other.words, sizeof(words)) < 0; }
    bool operator==(const CallKey &other) const {
        return std::memcmp(words, other.words, sizeof(words)) == 0;
    }
};

//! SipHash-2-4 with a result of 128 bits.
void SipHash128(const uint64_t (&secret)[2], const char *data, size_t length, uint64_t (&result)[2]);

//! Makes the keys of one process. Thread-safe.
class CallKeys {
  public:
    //! With a secret of its own from the kernel. Throws std::runtime_error when there is none.
    CallKeys();

    //! `object_info`: what Ceph records about the object; it contains pool, name and version.
    CallKey KeyOf(const std::string &object_info, const char *request, size_t length) const;
    //! Of the request alone.
    uint64_t RequestHash(const char *request, size_t length) const;

  private:
    uint64_t secret_[2] = {};
    uint64_t process_ = 0;
};

} // namespace rawduck_ceph
