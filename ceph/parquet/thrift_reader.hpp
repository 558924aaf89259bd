//! A reader of Thrift's compact encoding, as in Parquet footers. Bounded in length and depth for any input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace rawduck_ceph {

constexpr int THRIFT_DEPTH_MAX = 24;

//! Thrown when the bytes are malformed or inconsistent.
struct InvalidParquet {
    const char *why;
};

//! Thrift's compact types, as in a field's or list's header.
enum ThriftType : uint8_t {
    STOP = 0,
    TRUE_VALUE = 1,
    FALSE_VALUE = 2,
    BYTE = 3,
    I16 = 4,
    I32 = 5,
    I64 = 6,
    DOUBLE = 7,
    BINARY = 8,
    LIST = 9,
    SET = 10,
    MAP = 11,
    STRUCT = 12
};

class ThriftReader {
  public:
    ThriftReader(const char *data, size_t length) : data_(data), end_(data + length) {}

    //! Calls `field(id, type)` for each field of a struct, which must read or Skip the value.
    void Struct(const std::function<void(int16_t, uint8_t)> &field) {
        Descend();
        int16_t id = 0;
        for (;;) {
            uint8_t header = Byte();
            uint8_t type = header & 0x0f;
            if (type == STOP) {
                break;
            }
            uint8_t delta = header >> 4;
            id = static_cast<int16_t>(delta != 0 ? id + delta : Signed());
            field(id, type);
        }
        depth_--;
    }

    //! Calls `item()` for each item of a list of structs.
    void StructList(uint8_t type, const std::function<void()> &item) {
        uint8_t item_type = 0;
        uint64_t count = ListHeader(type, item_type);
        if (count > 0 && item_type != STRUCT) {
            throw InvalidParquet{"a list of structures holds something else"};
        }
        for (uint64_t i = 0; i < count; i++) {
            item();
        }
    }

    int64_t Number(uint8_t type) {
        if (type != I16 && type != I32 && type != I64) {
            throw InvalidParquet{"a number is not encoded as one"};
        }
        return Signed();
    }

    std::string Text(uint8_t type) {
        if (type != BINARY) {
            throw InvalidParquet{"a text is not encoded as one"};
        }
        const uint64_t length = Varint();
        return std::string(Take(length), length);
    }

    //! Calls `item(text)` for each item of a list of texts.
    void TextList(uint8_t type, const std::function<void(std::string)> &item) {
        uint8_t item_type = 0;
        const uint64_t count = ListHeader(type, item_type);
        for (uint64_t i = 0; i < count; i++) {
            item(Text(item_type));
        }
    }

    void Skip(uint8_t type) {
        switch (type) {
        case TRUE_VALUE:
        case FALSE_VALUE:
            return;
        case BYTE:
            Take(1);
            return;
        case I16:
        case I32:
        case I64:
            Signed();
            return;
        case DOUBLE:
            Take(8);
            return;
        case BINARY:
            Take(Varint());
            return;
        case LIST:
        case SET:
            SkipList(type);
            return;
        case MAP:
            SkipMap();
            return;
        case STRUCT:
            Struct([this](int16_t, uint8_t inner) { Skip(inner); });
            return;
        default:
            throw InvalidParquet{"an unknown type"};
        }
    }

    bool AtEnd() const { return data_ == end_; }

  private:
    void Descend() {
        if (++depth_ > THRIFT_DEPTH_MAX) {
            throw InvalidParquet{"it is nested too deep"};
        }
    }

    void SkipList(uint8_t type) {
        Descend();
        uint8_t item_type = 0;
        for (uint64_t left = ListHeader(type, item_type); left > 0; left--) {
            SkipItem(item_type);
        }
        depth_--;
    }

    //! In lists and maps a boolean is a byte. So each item takes one at least, and what a footer can ask for is
    //! bounded by its length.
    void SkipItem(uint8_t type) {
        Skip(type == TRUE_VALUE || type == FALSE_VALUE ? static_cast<uint8_t>(BYTE) : type);
    }

    void SkipMap() {
        Descend();
        uint64_t count = Varint();
        CheckCount(count);
        uint8_t types = count > 0 ? Byte() : 0;
        for (; count > 0; count--) {
            SkipItem(types >> 4);
            SkipItem(types & 0x0f);
        }
        depth_--;
    }

    uint64_t ListHeader(uint8_t type, uint8_t &item_type) {
        if (type != LIST && type != SET) {
            throw InvalidParquet{"a list is not encoded as one"};
        }
        uint8_t header = Byte();
        item_type = header & 0x0f;
        uint64_t count = header >> 4;
        if (count == 15) {
            count = Varint();
        }
        CheckCount(count);
        return count;
    }

    //! Each item takes at least one byte.
    void CheckCount(uint64_t count) const {
        if (count > static_cast<uint64_t>(end_ - data_)) {
            throw InvalidParquet{"a list is longer than the footer"};
        }
    }

    uint8_t Byte() { return static_cast<uint8_t>(*Take(1)); }

    const char *Take(uint64_t length) {
        if (length > static_cast<uint64_t>(end_ - data_)) {
            throw InvalidParquet{"it ends too early"};
        }
        const char *start = data_;
        data_ += length;
        return start;
    }

    uint64_t Varint() {
        uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            uint8_t byte = Byte();
            value |= static_cast<uint64_t>(byte & 0x7f) << shift;
            if ((byte & 0x80) == 0) {
                return value;
            }
        }
        throw InvalidParquet{"a number is too long"};
    }

    int64_t Signed() {
        uint64_t value = Varint();
        return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
    }

    const char *data_;
    const char *end_;
    int depth_ = 0;
};

} // namespace rawduck_ceph
