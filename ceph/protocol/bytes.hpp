//! Little-endian integers and length-prefixed strings. The reader throws ProtocolError instead of
//! reading out of bounds.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace rawduck_ceph {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "integers are copied as they are in memory, and the wire format is little-endian");

//! A message that no correct peer of this version sends.
class ProtocolError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

class ByteWriter {
  public:
    template <class T> void Integer(T value) {
        static_assert(std::is_integral_v<T>);
        bytes_.append(reinterpret_cast<const char *>(&value), sizeof(value));
    }
    void String(const std::string &text) {
        Integer(static_cast<uint32_t>(text.size()));
        bytes_ += text;
    }
    std::string Take() { return std::move(bytes_); }

  private:
    std::string bytes_;
};

class ByteReader {
  public:
    ByteReader(const char *data, size_t length) : data_(data), left_(length) {}

    template <class T> T Integer() {
        static_assert(std::is_integral_v<T>);
        T value;
        std::memcpy(&value, Bytes(sizeof(value)), sizeof(value));
        return value;
    }
    std::string String() {
        uint32_t length = Integer<uint32_t>();
        return std::string(Bytes(length), length);
    }
    //! The number of items that follow. Each takes at least one byte, which bounds the number
    //! by the bytes left.
    uint32_t Count() {
        uint32_t count = Integer<uint32_t>();
        if (count > left_) {
            throw ProtocolError("a list is longer than the message");
        }
        return count;
    }
    size_t Left() const { return left_; }

  private:
    const char *Bytes(size_t length) {
        if (length > left_) {
            throw ProtocolError("the message ends too early");
        }
        const char *start = data_;
        data_ += length;
        left_ -= length;
        return start;
    }

    const char *data_;
    size_t left_;
};

} // namespace rawduck_ceph
