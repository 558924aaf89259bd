#include "ceph/channel/call_key.hpp"

#include <stdexcept>
#include <sys/random.h>

namespace rawduck_ceph {

namespace {

uint64_t Rotate(uint64_t value, int bits) {
    return value << bits | value >> (64 - bits);
}

class SipState {
  public:
    explicit SipState(const uint64_t (&secret)[2])
        : v0_(0x736f6d6570736575 ^ secret[0]), v1_(0x646f72616e646f6d ^ secret[1] ^ 0xee),
          v2_(0x6c7967656e657261 ^ secret[0]), v3_(0x7465646279746573 ^ secret[1]) {}

    void Word(uint64_t word) {
        v3_ ^= word;
        Rounds(2);
        v0_ ^= word;
    }
    void Finish(uint64_t (&result)[2]) {
        v2_ ^= 0xee;
        Rounds(4);
        result[0] = v0_ ^ v1_ ^ v2_ ^ v3_;
        v1_ ^= 0xdd;
        Rounds(4);
        result[1] = v0_ ^ v1_ ^ v2_ ^ v3_;
    }

  private:
    void Rounds(int count) {
        for (int round = 0; round < count; round++) {
            v0_ += v1_;
            v1_ = Rotate(v1_, 13) ^ v0_;
            v0_ = Rotate(v0_, 32);
            v2_ += v3_;
            v3_ = Rotate(v3_, 16) ^ v2_;
            v0_ += v3_;
            v3_ = Rotate(v3_, 21) ^ v0_;
            v2_ += v1_;
            v1_ = Rotate(v1_, 17) ^ v2_;
            v2_ = Rotate(v2_, 32);
        }
    }

    uint64_t v0_, v1_, v2_, v3_;
};

} // namespace

void SipHash128(const uint64_t (&secret)[2], const char *data, size_t length, uint64_t (&result)[2]) {
    SipState state(secret);
    const size_t whole = length / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t word;
        std::memcpy(&word, data + i, sizeof(word));
        state.Word(word);
    }
    uint64_t last = static_cast<uint64_t>(length) << 56;
    std::memcpy(&last, data + whole, length - whole);
    state.Word(last);
    state.Finish(result);
}

CallKeys::CallKeys() {
    uint64_t random[3];
    if (getrandom(random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
        throw std::runtime_error("the kernel gave no random bytes");
    }
    secret_[0] = random[0];
    secret_[1] = random[1];
    process_ = random[2];
}

CallKey CallKeys::KeyOf(const std::string &object_info, const char *request, size_t length) const {
    // The length first, so that no other division into two parts gives the same bytes.
    const uint64_t info_bytes = object_info.size();
    std::string bytes(reinterpret_cast<const char *>(&info_bytes), sizeof(info_bytes));
    bytes.append(object_info).append(request, length);
    uint64_t hash[2];
    SipHash128(secret_, bytes.data(), bytes.size(), hash);
    CallKey key;
    key.words[0] = hash[0];
    key.words[1] = hash[1];
    key.words[2] = process_;
    return key;
}

uint64_t CallKeys::RequestHash(const char *request, size_t length) const {
    uint64_t hash[2];
    SipHash128(secret_, request, length, hash);
    return hash[0];
}

} // namespace rawduck_ceph
