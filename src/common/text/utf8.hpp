//! Whether bytes that somebody else has written are text.
#pragma once

#include <cstdint>
#include <string_view>

namespace rawduck {

//! DuckDB takes nothing else for a VARCHAR: no stray or missing bytes, no surrogates, nothing in more bytes than it needs.
inline bool IsUtf8(std::string_view text) {
    static constexpr uint32_t LEAST[] = {0, 0, 0x80, 0x800, 0x10000}; // by the number of bytes
    for (size_t at = 0; at < text.size();) {
        const auto first = static_cast<uint8_t>(text[at]);
        const size_t length = first < 0x80 ? 1 : first < 0xC0 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        if (length == 0 || length > text.size() - at) {
            return false;
        }
        uint32_t code = length == 1 ? first : first & (0x7F >> length);
        for (size_t i = 1; i < length; i++) {
            const auto next = static_cast<uint8_t>(text[at + i]);
            if ((next & 0xC0) != 0x80) {
                return false;
            }
            code = code << 6 | (next & 0x3F);
        }
        if (first > 0xF4 || code < LEAST[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
            return false;
        }
        at += length;
    }
    return true;
}

} // namespace rawduck
