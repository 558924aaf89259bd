//! Keys of metadata trees that are numbers.
#pragma once

#include <cstdint>
#include <string_view>

namespace rawduck {

//! Big-endian, so that keys are ordered as the numbers.
class NumberKey {
  public:
    static constexpr size_t BYTES = 8;

    explicit NumberKey(uint64_t number) {
        for (size_t byte = BYTES; byte-- > 0; number >>= 8) {
            bytes_[byte] = static_cast<char>(number);
        }
    }
    operator std::string_view() const { return {bytes_, sizeof bytes_}; }

    //! Of the first BYTES bytes of a key, which has at least as many.
    static uint64_t NumberOf(std::string_view key) {
        uint64_t number = 0;
        for (size_t byte = 0; byte < BYTES; byte++) {
            number = number << 8 | static_cast<uint8_t>(key[byte]);
        }
        return number;
    }

  private:
    char bytes_[BYTES];
};

//! A value of a tree that is a number. Refers to it.
inline std::string_view BytesOf(const uint64_t &number) {
    return {reinterpret_cast<const char *>(&number), sizeof number};
}

} // namespace rawduck
