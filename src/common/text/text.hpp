//! How texts begin and end.
#pragma once

#include <string>
#include <string_view>

namespace rawduck {

inline bool StartsWith(const std::string &text, std::string_view start) {
    return text.compare(0, start.size(), start) == 0;
}

inline bool EndsWith(const std::string &text, std::string_view end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

} // namespace rawduck
